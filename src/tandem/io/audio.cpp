// Sound files, mixing down and resampling.
#include "tandem/io/audio.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/io/byte_reader.h"
#include "tandem/io/file.h"

#ifdef TANDEM_HAS_SNDFILE
#include <sndfile.h>
#endif

namespace tandem::io {
namespace {

constexpr int64_t kMostRate = 768'000, kMostChannels = 256, kMostFrames = int64_t{1} << 36;
constexpr size_t kHeadBytes = 1 << 16;  // enough for the head of nearly every wav file

void check_info(const AudioInfo& info, const std::string& where) {
  TD_CHECK(info.sample_rate >= 1 && info.sample_rate <= kMostRate, where, "the sample rate must be 1 to ",
           kMostRate, " Hz; got ", info.sample_rate, kDamaged);
  TD_CHECK(info.channels >= 1 && info.channels <= kMostChannels, where, "there must be 1 to ", kMostChannels,
           " channels; got ", info.channels, kDamaged);
  TD_CHECK(info.frames <= kMostFrames, where, "there must be at most ", kMostFrames, " samples; got ",
           info.frames, kDamaged);
  TD_CHECK(info.frames >= 1, where, "there must be at least one sample of sound; got ", info.frames,
           ". Record it again.");
}

bool is_wav(std::span<const uint8_t> head) {
  return head.size() >= 12 && std::memcmp(head.data(), "RIFF", 4) == 0 &&
         std::memcmp(head.data() + 8, "WAVE", 4) == 0;
}

/// How a wav file writes a number.
enum class WavFormat : uint8_t { u8, i16, i24, i32, f32, f64 };
size_t bytes_of(WavFormat format) {
  constexpr size_t kBytes[] = {1, 2, 3, 4, 4, 8};
  return kBytes[static_cast<size_t>(format)];
}

struct Wav {
  AudioInfo info;
  WavFormat format = WavFormat::i16;
  size_t begin = 0;  // of the samples in the file
};

/// The head of a wav file; nothing where it is of a kind that only libsndfile reads, or where `bytes`, the first of a file of
/// `file_bytes`, end before the samples begin.
std::optional<Wav> wav_head(std::span<const uint8_t> bytes, size_t file_bytes, const std::string& where) {
  ByteReader reader(where, bytes);
  reader.seek(12, "the first chunk");
  Wav wav;
  bool has_format = false;
  while (true) {
    if (bytes.size() < file_bytes && reader.left() < 8) return {};
    const auto kind = reader.take(8, "a chunk's head");
    uint32_t size = 0;
    std::memcpy(&size, kind.data() + 4, 4);
    if (std::memcmp(kind.data(), "data", 4) == 0) {
      if (!has_format) reader.fail("the format must come before the samples; there is none");
      wav.begin = reader.at();
      const size_t left = file_bytes - wav.begin,
                   frame = bytes_of(wav.format) * static_cast<size_t>(wav.info.channels);
      // A program that writes into a pipe does not know the size when it writes the head.
      const bool is_open = size == 0xffffffff || (size == 0 && left > 0);
      if (!is_open && size > left) reader.fail("the samples must take ", size, " bytes; ", left, " are left");
      wav.info.frames = static_cast<int64_t>((is_open ? left : size) / frame);
      return wav;
    }
    const uint64_t padded = uint64_t{size} + (size & 1);  // chunks begin at even places
    if (bytes.size() < file_bytes && padded > reader.left()) return {};
    if (std::memcmp(kind.data(), "fmt ", 4) != 0) {
      reader.take(std::min<uint64_t>(padded, std::max<uint64_t>(reader.left(), size)), "a chunk");
      continue;
    }
    ByteReader format(where, reader.take(padded, "the format"));
    auto code = format.number<uint16_t>("the format");
    wav.info.channels = format.number<uint16_t>("the channels");
    wav.info.sample_rate = format.number<uint32_t>("the sample rate");
    format.take(6, "the rate of bytes");
    const auto bits = format.number<uint16_t>("the bits per sample");
    if (code == 0xfffe && size >= 40) {  // extensible: the kind is in the first bytes of a name
      format.take(8, "the extension");
      code = format.number<uint16_t>("the format");
    }
    const bool is_whole = code == 1, is_float = code == 3;
    if (is_whole && bits == 8)
      wav.format = WavFormat::u8;
    else if (is_whole && bits == 16)
      wav.format = WavFormat::i16;
    else if (is_whole && bits == 24)
      wav.format = WavFormat::i24;
    else if (is_whole && bits == 32)
      wav.format = WavFormat::i32;
    else if (is_float && bits == 32)
      wav.format = WavFormat::f32;
    else if (is_float && bits == 64)
      wav.format = WavFormat::f64;
    else
      return {};
    if (wav.info.channels < 1) reader.fail("there must be at least one channel; got none");
    has_format = true;
  }
}

template <class T>
T number_at(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

float sample_at(const uint8_t* at, WavFormat format) {
  switch (format) {
    case WavFormat::u8:
      return static_cast<float>(*at - 128) / 128.0f;
    case WavFormat::i16:
      return static_cast<float>(number_at<int16_t>(at)) / 32768.0f;
    case WavFormat::i24:
      return static_cast<float>((number_at<int16_t>(at + 1) * 256) + *at) / 8388608.0f;
    case WavFormat::i32:
      return static_cast<float>(number_at<int32_t>(at)) / 2147483648.0f;
    case WavFormat::f32:
      return number_at<float>(at);
    case WavFormat::f64:
      return static_cast<float>(number_at<double>(at));
  }
  throw InternalError("a wav format without a size");
}

/// `value(frame, channel)` of all, mixed down.
template <class Value>
Audio mixed(const AudioInfo& info, const std::string& where, const Value& value) {
  const Tensor samples = empty({info.frames}, DType::f32);
  auto* out = samples.data<float>();
  for (int64_t i = 0; i < info.frames; ++i) {
    double sum = 0;
    for (int64_t c = 0; c < info.channels; ++c) sum += static_cast<double>(value(i, c));
    out[i] = static_cast<float>(sum / static_cast<double>(info.channels));
    TD_CHECK(std::isfinite(out[i]), where, "every sample must be a finite number; sample ", i, " is ", out[i],
             kDamaged);
  }
  return {samples, info.sample_rate};
}

void check_size(const AudioInfo& info, size_t packed_bytes, const std::string& where) {
  check_info(info, where);
  const auto frames = static_cast<uint64_t>(info.frames), channels = static_cast<uint64_t>(info.channels);
  check_unpacked(where, "the sound", packed_bytes, frames * channels * sizeof(float), reading_limits().bytes);
}

#ifdef TANDEM_HAS_SNDFILE

/// A file in memory, as libsndfile reads it.
struct Memory {
  std::span<const uint8_t> bytes;
  sf_count_t at = 0;

  static sf_count_t size(void* self) {
    return static_cast<sf_count_t>(static_cast<Memory*>(self)->bytes.size());
  }
  static sf_count_t seek(sf_count_t by, int from, void* self) {
    auto* memory = static_cast<Memory*>(self);
    const sf_count_t base = from == SEEK_SET ? 0 : from == SEEK_CUR ? memory->at : size(self);
    memory->at = std::clamp<sf_count_t>(base + by, 0, size(self));
    return memory->at;
  }
  static sf_count_t read(void* to, sf_count_t count, void* self) {
    auto* memory = static_cast<Memory*>(self);
    const sf_count_t there = std::clamp<sf_count_t>(size(self) - memory->at, 0, count);
    if (there > 0) std::memcpy(to, memory->bytes.data() + memory->at, static_cast<size_t>(there));
    memory->at += there;
    return there;
  }
  static sf_count_t write(const void*, sf_count_t, void*) { return 0; }
  static sf_count_t tell(void* self) { return static_cast<Memory*>(self)->at; }
};

class SoundFile {
 public:
  SoundFile(std::span<const uint8_t> bytes, const std::string& where) : memory_{bytes} {
    SF_VIRTUAL_IO io{Memory::size, Memory::seek, Memory::read, Memory::write, Memory::tell};
    file_ = sf_open_virtual(&io, SFM_READ, &head_, &memory_);
    if (file_) return;
    std::string why = one_line(sf_strerror(nullptr), 200);
    while (why.ends_with('.') || why.ends_with(' '))
      why.pop_back();  // some of its sentences end so, others do not
    throw Error(str(where, "must be a sound file, such as wav or flac; ", why, kDamaged));
  }
  ~SoundFile() { sf_close(file_); }
  SoundFile(const SoundFile&) = delete;
  SoundFile& operator=(const SoundFile&) = delete;

  /// frames: 0 where the head does not say how many there are.
  AudioInfo info() const {
    return {head_.frames == SF_COUNT_MAX ? 0 : head_.frames, head_.channels, head_.samplerate};
  }
  std::vector<float> read(int64_t frames, const std::string& where) {
    std::vector<float> values(static_cast<size_t>(frames * head_.channels));
    const sf_count_t got = sf_readf_float(file_, values.data(), frames);
    TD_CHECK(got == frames && sf_error(file_) == SF_ERR_NO_ERROR, where, "must have the ", frames,
             " samples that its head tells; got ", got, kDamaged);
    return values;
  }

 private:
  Memory memory_;
  SF_INFO head_{};
  SNDFILE* file_ = nullptr;
};

Audio decode_by_library(std::span<const uint8_t> bytes, const std::string& where) {
  SoundFile file(bytes, where);
  const AudioInfo info = file.info();
  check_size(info, bytes.size(), where);
  const std::vector<float> values = file.read(info.frames, where);
  return mixed(info, where,
               [&](int64_t i, int64_t c) { return values[static_cast<size_t>(i * info.channels + c)]; });
}

AudioInfo info_by_library(std::span<const uint8_t> bytes, const std::string& where) {
  return SoundFile(bytes, where).info();
}

#else

[[noreturn]] void refuse(const std::string& where) {
  throw Error(str(where,
                  "must be a plain wav file (whole numbers of 8 to 32 bits, or floats): this build has no "
                  "libsndfile, which reads "
                  "flac and others. Install libsndfile1-dev (Debian, Ubuntu) and build again."));
}
Audio decode_by_library(std::span<const uint8_t>, const std::string& where) { refuse(where); }
AudioInfo info_by_library(std::span<const uint8_t>, const std::string& where) { refuse(where); }

#endif

void check_samples(const char* what, const Tensor& samples) {
  TD_CHECK(
      samples.defined() && samples.rank() == 1 && samples.dtype() == DType::f32 && samples.device().is_cpu(),
      what, ": takes samples f32 (frames) on the CPU; got ",
      samples.defined() ? describe(samples) : "nothing", ".");
}

void check_not_empty(size_t bytes, const std::string& where) {
  TD_CHECK(bytes > 0, where,
           "must be a sound file, such as wav or flac; it is empty. Record or fetch it again.");
}

}  // namespace

bool has_sndfile() {
#ifdef TANDEM_HAS_SNDFILE
  return true;
#else
  return false;
#endif
}

Audio decode_audio(std::span<const uint8_t> bytes, const std::string& where) {
  check_not_empty(bytes.size(), where);
  const std::optional<Wav> wav = is_wav(bytes) ? wav_head(bytes, bytes.size(), where) : std::nullopt;
  if (!wav) return decode_by_library(bytes, where);
  check_size(wav->info, bytes.size(), where);
  const size_t step = bytes_of(wav->format);
  return mixed(wav->info, where, [&](int64_t i, int64_t c) {
    return sample_at(bytes.data() + wav->begin + static_cast<size_t>(i * wav->info.channels + c) * step,
                     wav->format);
  });
}

Audio read_audio(const std::string& path) {
  return decode_audio(read_file("read", path), str("read '", one_line(path), "': "));
}

AudioInfo audio_info(const std::string& path) {
  const std::string where = str("read '", one_line(path), "': ");
  InputFile file("read", path);
  const auto file_bytes = static_cast<size_t>(file.bytes());
  check_not_empty(file_bytes, where);
  std::vector<uint8_t> head(std::min(file_bytes, kHeadBytes));
  file.read(head.data(), head.size());
  std::optional<AudioInfo> info;
  if (is_wav(head))
    if (const std::optional<Wav> wav = wav_head(head, file_bytes, where)) info = wav->info;
  // The head of a flac file is at its begin as well, and says how many samples follow.
  const bool is_flac = head.size() >= 42 && std::memcmp(head.data(), "fLaC", 4) == 0 && (head[4] & 0x7f) == 0;
  if (is_flac && has_sndfile()) {
    const uint8_t* at = head.data() + 18;  // 20 bits rate, 3 channels - 1, 5 bits per sample - 1, 36 frames
    info =
        AudioInfo{(int64_t{at[3] & 15} << 32) | (int64_t{at[4]} << 24) | (at[5] << 16) | (at[6] << 8) | at[7],
                  ((at[2] >> 1) & 7) + 1, (at[0] << 12) | (at[1] << 4) | (at[2] >> 4)};
  }
  if (!info || info->frames == 0) {
    const std::vector<uint8_t> bytes = read_file("read", path);
    info = is_wav(bytes) && wav_head(bytes, bytes.size(), where) ? wav_head(bytes, bytes.size(), where)->info
                                                                 : info_by_library(bytes, where);
  }
  check_info(*info, where);
  return *info;
}

std::vector<uint8_t> encode_wav(const Tensor& samples, int64_t sample_rate) {
  check_samples("encode_wav", samples);
  TD_CHECK(sample_rate >= 1 && sample_rate <= kMostRate, "encode_wav: the sample rate must be 1 to ",
           kMostRate, " Hz; got ", sample_rate, ".");
  TD_CHECK(samples.size() <= INT32_MAX / 2, "encode_wav: a wav file has at most ", INT32_MAX / 2,
           " samples; got ", samples.size(), ".");
  const std::vector<float> values = samples.to_vector<float>();
  const auto bytes = static_cast<uint32_t>(values.size() * 2), rate = static_cast<uint32_t>(sample_rate);
  std::vector<uint8_t> out;
  const auto put = [&](auto number) {
    const auto* begin = reinterpret_cast<const uint8_t*>(&number);
    out.insert(out.end(), begin, begin + sizeof number);
  };
  const auto put_text = [&](std::string_view text) { out.insert(out.end(), text.begin(), text.end()); };
  put_text("RIFF");
  put(36 + bytes);
  put_text("WAVEfmt ");
  put(uint32_t{16});
  put(uint16_t{1});  // whole numbers
  put(uint16_t{1});  // a channel
  put(rate);
  put(rate * 2);
  put(uint16_t{2});
  put(uint16_t{16});
  put_text("data");
  put(bytes);
  for (const float value : values)
    put(static_cast<int16_t>(
        std::isnan(value) ? 0 : std::clamp(std::round(value * 32768.0f), -32768.0f, 32767.0f)));
  return out;
}

Tensor resample_audio(const Tensor& samples, int64_t from, int64_t to) {
  check_samples("resample_audio", samples);

  TD_CHECK(from >= 1 && from <= kMostRate && to >= 1 && to <= kMostRate,
           "resample_audio: rates must be 1 to ", kMostRate, " Hz; got ", from, " and ", to, ".");
  if (from == to) return samples;
  const int64_t shared = std::gcd(from, to), step = from / shared, phases = to / shared;
  // A sinc of zeros * 2 + 1 lobes under a Hann window, which passes 99 % of the frequencies that both rates can hold.
  constexpr double kZeros = 6, kPassed = 0.99;
  const double base = static_cast<double>(std::min(step, phases)) * kPassed;
  const auto width = static_cast<int64_t>(std::ceil(kZeros * static_cast<double>(step) / base));
  struct Phase {
    int64_t first = 0;  // input of the first weight, from the frame's own begin
    std::vector<double> weights;
  };
  const auto phase_at = [&](int64_t p) {
    Phase out;
    for (int64_t k = -width; k < width + step; ++k) {
      const double t = base * (static_cast<double>(k) / static_cast<double>(step) -
                               static_cast<double>(p) / static_cast<double>(phases));
      if (std::abs(t) >= kZeros) continue;
      if (out.weights.empty()) out.first = k;
      const double angle = t * std::numbers::pi, window = std::cos(angle / kZeros / 2);
      out.weights.push_back((angle == 0 ? 1 : std::sin(angle) / angle) * window * window * base /
                            static_cast<double>(step));
    }
    return out;
  };
  const int64_t frames = samples.size(0);
  const int64_t length = (phases * frames + step - 1) / step;
  const Tensor in =
      samples.is_contiguous() ? samples : from_host(host_bytes(samples).data(), samples.shape(), DType::f32);
  const float* x = in.data<float>();
  const Tensor out = empty({length}, DType::f32);
  auto* y = out.data<float>();
  for (int64_t p = 0; p < std::min(phases, length); ++p) {
    const Phase phase = phase_at(p);
    for (int64_t i = p, at = phase.first; i < length; i += phases, at += step) {
      double sum = 0;
      for (size_t k = 0; k < phase.weights.size(); ++k) {
        const int64_t place = at + static_cast<int64_t>(k);
        if (place >= 0 && place < frames) sum += phase.weights[k] * static_cast<double>(x[place]);
      }
      y[i] = static_cast<float>(sum);
    }
  }
  return out;
}

}  // namespace tandem::io
