// Sound: files are read, mixed down and resampled; spectrograms and mel features are torchaudio's; texts become labels and come
// back; the sets of speech find their files. Files that lie are refused by what they must hold.
// ctest: asan
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <span>

#include "tandem/data/ljspeech.h"
#include "tandem/data/log_mel.h"
#include "tandem/data/speech_set.h"
#include "tandem/data/transcript.h"
#include "tandem/io/audio.h"
#include "tests/support/golden.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"
#include "tests/support/wav.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

std::span<const uint8_t> bytes_in(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
std::vector<float> decoded(const std::string& bytes) {
  return io::decode_audio(bytes_in(bytes)).samples.to_vector<float>();
}

/// The rows of sound.txt, by name.
Array golden_sound(const std::string& name) {
  for (const std::string& line : golden_lines("sound.txt")) {
    std::istringstream in(line);
    std::string first;
    in >> first;
    if (first == name) return read_array(in);
  }
  ADD_FAILURE() << "sound.txt has no row " << name;
  return {};
}

Tensor signal(int64_t count, uint32_t salt) {
  return to_tensor(hash_array({count}, salt, -0.5, 0.5), DType::f32);
}

void expect_near(const Tensor& got, const Array& want, double tolerance) {
  ASSERT_EQ(got.shape(), want.shape);
  const std::vector<float> values = got.to_vector<float>();
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(static_cast<double>(values[i]), want.values[i], tolerance) << "element " << i;
}

TEST(Wav, ReadsWholeNumbersAndFloats) {
  EXPECT_EQ(decoded(wav_of({0, 16384, -32768})), (std::vector<float>{0, 0.5, -1}));
  EXPECT_EQ(decoded(wav_bytes({.bits = 8}, {char(128), char(192), char(0)})),
            (std::vector<float>{0, 0.5, -1}));
  EXPECT_EQ(decoded(wav_bytes({.bits = 24}, std::string("\0\0\x40\0\0\x80", 6))),
            (std::vector<float>{0.5, -1}));
  EXPECT_EQ(decoded(wav_bytes({.bits = 32}, std::string("\0\0\0\x40\0\0\0\x80", 8))),
            (std::vector<float>{0.5, -1}));
  std::string floats, doubles;
  for (const float value : {0.25f, -2.0f})
    put_number(floats, value), put_number(doubles, static_cast<double>(value));
  EXPECT_EQ(decoded(wav_bytes({.format = 3, .bits = 32}, floats)), (std::vector<float>{0.25, -2}));
  EXPECT_EQ(decoded(wav_bytes({.format = 3, .bits = 64}, doubles)), (std::vector<float>{0.25, -2}));
}

TEST(Wav, MixesChannelsDownAndPassesOverOtherChunks) {
  std::string samples;
  for (const int16_t sample : {16384, 0, -16384, -32768}) put_number(samples, sample);
  std::string bytes = wav_bytes({.channels = 2, .rate = 8000}, samples);
  EXPECT_EQ(decoded(bytes), (std::vector<float>{0.25, -0.75}));
  bytes.insert(36, std::string("LIST\3\0\0\0abc\0", 12));  // of an odd size, so that a byte follows it
  EXPECT_EQ(decoded(bytes), (std::vector<float>{0.25, -0.75}));
  EXPECT_EQ(io::decode_audio(bytes_in(bytes)).sample_rate, 8000);
}

TEST(Wav, IsWrittenAndReadBack) {
  const Tensor samples = from_vector<float>({0, 0.5, -1, 2, -3}, {5});
  const std::vector<uint8_t> bytes = io::encode_wav(samples, 22050);
  const io::Audio back = io::decode_audio(bytes);
  EXPECT_EQ(back.sample_rate, 22050);
  EXPECT_EQ(back.samples.to_vector<float>(), (std::vector<float>{0, 0.5, -1, 32767.0f / 32768, -1}));
  EXPECT_HAS(refusal([&] { io::encode_wav(samples, 0); }), "must be 1 to 768000 Hz; got 0");
  EXPECT_HAS(refusal([&] {
               io::encode_wav(to_tensor(Array(Dims{2, 2}), DType::f32), 8000);
             }),
             "samples f32 (frames)");
}

TEST(Wav, TakesAllThereIsWhereTheSizeWasNotKnown) {
  std::string bytes = wav_of({1, 2, 3});
  bytes.replace(40, 4, "\xff\xff\xff\xff");
  EXPECT_EQ(decoded(bytes).size(), 3u);
  bytes.replace(40, 4, std::string(4, '\0'));
  EXPECT_EQ(decoded(bytes).size(), 3u);
}

TEST(Wav, RefusesFilesThatLie) {
  const std::string good = wav_of({1, 2, 3, 4});
  EXPECT_HAS(refusal([] { decoded(""); }), "it is empty");
  EXPECT_HAS(refusal([&] { decoded(good.substr(0, 46)); }), "the samples must take 8 bytes; 2 are left");
  EXPECT_HAS(refusal([&] { decoded(good.substr(0, 30)); }), "the format must take 16 bytes; 10 are left");
  EXPECT_HAS(refusal([&] { decoded(wav_of({})); }), "at least one sample of sound; got 0");
  EXPECT_HAS(refusal([&] { decoded(wav_of({1}, 0)); }), "the sample rate must be 1 to 768000 Hz; got 0");
  EXPECT_HAS(refusal([&] { decoded(wav_bytes({.channels = 0}, "ab")); }), "at least one channel");
  std::string infinite;
  put_number(infinite, std::numeric_limits<float>::infinity());
  EXPECT_HAS(refusal([&] { decoded(wav_bytes({.format = 3, .bits = 32}, infinite)); }), "sample 0 is inf");
  std::string headless = good;
  headless.replace(12, 4, "junk");
  EXPECT_HAS(refusal([&] { decoded(headless); }), "the format must come before the samples");
  EXPECT_HAS(refusal([] { decoded("this is a text, not a sound"); }), "wav");
  // Every cut and every changed byte is read or refused, and nothing else.
  for (size_t cut = 0; cut < good.size(); ++cut)
    EXPECT_NE(message_of<Error>([&] { decoded(good.substr(0, cut)); }), "");
  for (size_t at = 0; at < good.size(); ++at)
    for (const int change : {1, 0x80, 0xff}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ change);
      message_of<Error>([&] { decoded(bytes); });
    }
}

TEST(Flac, IsReadByTheLibrary) {
  const std::string path = (source_dir() / "tests/golden/sound/stereo.flac").string();
  if (!io::has_sndfile()) {
    EXPECT_HAS(refusal([&] { io::read_audio(path); }), "Install libsndfile1-dev");
    return;
  }
  const io::Audio audio = io::read_audio(path);
  EXPECT_EQ(audio.sample_rate, 16000);
  const std::vector<float> samples = audio.samples.to_vector<float>();
  ASSERT_EQ(samples.size(), 700u);
  for (size_t i = 0; i < samples.size(); ++i)
    ASSERT_EQ(samples[i],
              static_cast<float>((static_cast<double>(i) * 40 - 14000 + static_cast<double>(i % 50) * 300) /
                                 65536));
  const io::AudioInfo info = io::audio_info(path);
  EXPECT_EQ(info.frames, 700);
  EXPECT_EQ(info.channels, 2);
  EXPECT_EQ(info.sample_rate, 16000);
  const std::string good = read_text(path);
  for (size_t cut = 0; cut < good.size(); cut += 37)
    EXPECT_NE(message_of<Error>([&] { decoded(good.substr(0, cut)); }), "") << cut;
  for (size_t at = 0; at < good.size(); at += 3) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x55);
    message_of<Error>([&] { decoded(bytes); });
  }
}

TEST(AudioInfo, ComesFromTheHeadOfAFile) {
  const TempFolder folder;
  write_text(folder / "a.wav", wav_of(std::vector<int16_t>(5000), 22050));
  const io::AudioInfo info = io::audio_info(folder / "a.wav");
  EXPECT_EQ(info.frames, 5000);
  EXPECT_EQ(info.sample_rate, 22050);
  std::string far = wav_of({1, 2, 3});
  std::string chunk = "LIST";
  put_number<uint32_t>(chunk, 100000);
  far.insert(36, chunk + std::string(100000, 'x'));  // the samples begin where nobody reads a head
  write_text(folder / "far.wav", far);
  EXPECT_EQ(io::audio_info(folder / "far.wav").frames, 3);
  write_text(folder / "empty.wav", "");
  EXPECT_HAS(refusal([&] { io::audio_info(folder / "empty.wav"); }), "it is empty");
  EXPECT_HAS(refusal([&] { io::audio_info(folder / "none.wav"); }), "none.wav");
  EXPECT_HAS(refusal([&] { io::read_audio(folder.path()); }), folder.path());
}

TEST(Resampling, IsTorchaudios) {
  for (const auto& [from, to] :
       {std::pair(22050, 16000), {16000, 22050}, {8000, 16000}, {48000, 16000}, {44100, 16000}}) {
    SCOPED_TRACE(str(from, " to ", to));
    expect_near(io::resample_audio(signal(400, 504), from, to), golden_sound(str("resample_", from, "_", to)),
                1e-6);
  }
  const Tensor same = signal(10, 1);
  EXPECT_EQ(io::resample_audio(same, 8000, 8000).to_vector<float>(), same.to_vector<float>());
  EXPECT_EQ(io::resample_audio(signal(1, 1), 48000, 16000).size(), 1);
  EXPECT_HAS(refusal([&] { io::resample_audio(same, 0, 8000); }),
             "rates must be 1 to 768000 Hz; got 0 and 8000");
  EXPECT_HAS(refusal([&] { io::resample_audio(to_tensor(Array(Dims{4}), DType::f64), 8000, 16000); }),
             "samples f32 (frames)");
}

TEST(LogMel, IsTorchaudios) {
  expect_near(data::log_mel(signal(900, 501), data::deepspeech2_sound()), golden_sound("deepspeech2"), 2e-5);
  expect_near(data::log_mel(signal(1500, 502), data::tacotron2_sound()), golden_sound("tacotron2"), 2e-5);
  data::LogMelOptions htk{.n_fft = 512, .window = 400, .mels = 23, .low = 20, .floor = 1e-3};
  expect_near(data::log_mel(signal(1000, 503), htk), golden_sound("htk"), 2e-5);
  htk.slaney_norm = true;
  htk.floor = 1e-8;
  expect_near(data::log_mel(signal(1000, 503), htk), golden_sound("htk_area"), 2e-5);
}

TEST(LogMel, KnowsItsFramesBeforehand) {
  for (const int64_t count : {161, 320, 479, 480, 5000})
    EXPECT_EQ(data::log_mel(signal(count, 1), data::deepspeech2_sound()).size(0),
              data::frames_of(count, data::deepspeech2_sound()));
  const TempFolder folder;
  write_spoken(folder / "a.wav", "HELLO", 22050);
  const Tensor features = data::read_log_mel(folder / "a.wav", data::deepspeech2_sound());
  EXPECT_EQ(features.size(0), data::frames_in(folder / "a.wav", data::deepspeech2_sound()));
  EXPECT_EQ(features.shape(), (Dims{61, 161}));  // 0.6 s, each 10 ms
}

TEST(LogMel, OfSilenceIsFinite) {
  const std::vector<float> values =
      data::log_mel(to_tensor(Array(Dims{1000}), DType::f32), data::deepspeech2_sound()).to_vector<float>();
  for (const float value : values) ASSERT_EQ(value, 0);
}

TEST(LogMel, RefusesBadSettingsAndShortSound) {
  const Tensor sound = signal(1000, 1);
  const auto refused = [&](data::LogMelOptions options) {
    return refusal([&] { data::log_mel(sound, options); });
  };
  EXPECT_HAS(refused({.n_fft = 0}), "n_fft must be 2 to");
  EXPECT_HAS(refused({.n_fft = 400, .window = 401}), "the window must be 0 (n_fft) or up to n_fft = 400");
  EXPECT_HAS(refused({.hop = 0}), "hop must be at least 1");
  EXPECT_HAS(refused({.mels = -1}), "bands; got -1");
  EXPECT_HAS(refused({.floor = 0}), "floor must be above 0");
  EXPECT_HAS(refused({.power = 0}), "power must be above 0");
  EXPECT_HAS(refused({.low = 9000}), "low below high");
  EXPECT_HAS(refusal([&] { data::log_mel(signal(160, 1), data::deepspeech2_sound()); }),
             "more than n_fft / 2 = 160 samples (0.01 s); got 160");
  const TempFolder folder;
  write_text(folder / "short.wav", wav_of({1, 2, 3}));
  const std::string message =
      refusal([&] { data::read_log_mel(folder / "short.wav", data::deepspeech2_sound()); });
  EXPECT_HAS(message, "short.wav");
  EXPECT_HAS(message, "got 3");
}

TEST(Transcripts, ComeBackAsCapitalLetters) {
  const std::vector<int64_t> labels = data::transcript_labels("It's  a test.");
  EXPECT_EQ(data::transcript_text(labels), "IT'S A TEST");
  EXPECT_EQ(labels.front(), 10);  // after the blank, the apostrophe and eight letters
  EXPECT_EQ(labels.back(), 21);
  EXPECT_EQ(data::transcript_text(data::transcript_labels("raison d’être — naïve, well-known")),
            "RAISON D'ETRE NAIVE WELL KNOWN");
  EXPECT_TRUE(data::transcript_labels(" \n").empty());
  EXPECT_EQ(data::transcript_text(std::vector<int64_t>{0, 2, 0, 3}), "AB");
  EXPECT_HAS(refusal([] { data::transcript_labels("room 101"); }),
             "got '1' in 'room 101'. Write it in words.");
  EXPECT_HAS(refusal([] { data::transcript_labels("привет"); }), "got 'п'");
  EXPECT_HAS(refusal([] { data::transcript_labels("\xff"); }), "a text must be letters");
  EXPECT_HAS(refusal([] { data::transcript_text(std::vector<int64_t>{29}); }), "0 to 28; got 29");
}

TEST(Ljspeech, ReadsTextsInWordsAndTheirSound) {
  const TempFolder folder;
  const fs::path place = fs::path(folder.path()) / "LJSpeech-1.1";
  fs::create_directories(place / "wavs");
  std::string list;
  for (const char* name : {"LJ001-0001", "LJ001-0002", "LJ001-0003"}) {
    write_spoken((place / "wavs" / (std::string(name) + ".wav")).string(), "ABC", 22050);
    list += str(name, "|in 19\"|in \"nineteen\n");
  }
  write_text((place / "metadata.csv").string(), list);
  const std::vector<data::Utterance> read = data::read_ljspeech(place.string());
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[1].text, "in \"nineteen");
  const data::Splits splits = data::open_dataset("ljspeech", {.data_dir = folder.path()});
  EXPECT_EQ(splits.task, "speech-recognition");
  EXPECT_EQ(splits.train->size() + splits.test->size(), 3);
  EXPECT_TRUE(splits.split_off);
  const std::vector<Tensor> sample = splits.train->get(0);
  EXPECT_EQ(sample[0].shape(), (Dims{37, 161}));
  EXPECT_EQ(splits.train->length(0), 37);
  EXPECT_EQ(data::transcript_text(sample[1].to_vector<int64_t>()), "IN NINETEEN");

  const data::Splits spoken =
      data::open_dataset("ljspeech", {.data_dir = folder.path(), .usual_task = "speech-synthesis"});
  EXPECT_EQ(spoken.task, "speech-synthesis");
  EXPECT_EQ(spoken.train->get(0)[0].size(1), 80);
  EXPECT_EQ(spoken.train->get(0)[0].size(0), spoken.train->length(0));
  EXPECT_EQ(spoken.text->vocabulary.decode(spoken.train->get(0)[1].to_vector<int64_t>()), "in \"nineteen");
  write_text((place / "metadata.csv").string(), "LJ001-0001|a|a\nLJ001-0002|a| \n");
  EXPECT_HAS(refusal([&] {
               data::open_dataset("ljspeech", {.data_dir = folder.path(), .usual_task = "speech-synthesis"});
             }),
             "LJ001-0002.wav': must have a character");

  write_text((place / "metadata.csv").string(), "LJ001-0001|in 19|in 19\nLJ001-0002|a|a\n");
  EXPECT_HAS(refusal([&] { data::open_dataset("ljspeech", {.data_dir = folder.path()}); }),
             "LJ001-0001.wav': a text must be letters");
  write_text((place / "metadata.csv").string(), "LJ001-0009|a|a\n");
  EXPECT_HAS(refusal([&] { data::read_ljspeech(place.string()); }),
             "line 1 names 'LJ001-0009', and there must be wavs/ID.wav");
  write_text((place / "metadata.csv").string(), "LJ001-0001\n");
  EXPECT_HAS(refusal([&] { data::read_ljspeech(place.string()); }),
             "must be ID|text|text in words; got 'LJ001-0001'");
  EXPECT_HAS(refusal([&] { data::open_dataset("ljspeech", {.data_dir = folder / "none"}); }), "metadata.csv");
}

TEST(Librispeech, ReadsItsParts) {
  const TempFolder folder;
  const auto add = [&](const char* part, const char* id, const char* text) {
    const fs::path place = fs::path(folder.path()) / "LibriSpeech" / part / "84" / "121123";
    fs::create_directories(place);
    write_spoken((place / str("84-121123-", id, ".wav")).string(), text);
    const std::string list = (place / "84-121123.trans.txt").string();
    write_text(list, str(fs::exists(list) ? read_text(list) : "", "84-121123-", id, " ", text, "\n"));
  };
  add("dev-clean", "0000", "GO DO YOU");
  EXPECT_HAS(refusal([&] { data::open_dataset("librispeech", {.data_dir = folder.path()}); }),
             "two utterances or more");
  add("dev-clean", "0001", "HEAR");
  EXPECT_TRUE(data::open_dataset("librispeech", {.data_dir = folder.path()}).split_off);
  add("train-clean-100", "0000", "ONE");
  add("train-other-500", "0000", "TWO");
  data::Splits splits = data::open_dataset("librispeech", {.data_dir = folder.path()});
  EXPECT_EQ(splits.train->size(), 2);
  EXPECT_EQ(splits.test->size(), 2);  // dev-clean, as there is no test part
  EXPECT_EQ(splits.valid, nullptr);
  add("test-clean", "0000", "THREE");
  splits = data::open_dataset("librispeech", {.data_dir = folder / "LibriSpeech"});
  EXPECT_EQ(splits.valid->size(), 2);
  EXPECT_EQ(splits.test->size(), 1);
  EXPECT_EQ(data::transcript_text(splits.test->get(0)[1].to_vector<int64_t>()), "THREE");
  EXPECT_EQ(splits.test->length(0), splits.test->get(0)[0].size(0));
  const fs::path chapter = fs::path(folder.path()) / "LibriSpeech/test-clean/84/121123";
  fs::remove(chapter / "84-121123-0000.wav");
  EXPECT_HAS(refusal([&] { data::open_dataset("librispeech", {.data_dir = folder.path()}); }),
             "'84-121123-0000.flac' is not there");
  write_text((chapter / "84-121123.trans.txt").string(), "84-121123-0000\n");
  EXPECT_HAS(refusal([&] { data::open_dataset("librispeech", {.data_dir = folder.path()}); }),
             "a line must be ID TEXT");
}

TEST(SyntheticSpeech, HasTheShapesOfLibrispeech) {
  const data::Splits splits = data::open_dataset("synthetic-librispeech");
  EXPECT_EQ(splits.train->size(), 28539);
  int64_t shortest = 1 << 20, longest = 0;
  for (int64_t i = 0; i < 300; ++i) {
    shortest = std::min(shortest, splits.train->length(i));
    longest = std::max(longest, splits.train->length(i));
  }
  EXPECT_GE(shortest, 100);
  EXPECT_LE(longest, 1600);
  EXPECT_GT(longest, 1500);
  const std::vector<Tensor> sample = splits.test->get(5);
  EXPECT_EQ(sample[0].shape(), (Dims{splits.test->length(5), 161}));
  EXPECT_EQ(sample[1].size(0), sample[0].size(0) / 6);
  EXPECT_EQ(sample[0].to_vector<float>(), splits.test->get(5)[0].to_vector<float>());
}

}  // namespace
}  // namespace tandem::testing
