// Utterances as samples, and their parts.
#include "tandem/data/speech_set.h"

#include "tandem/core/error.h"
#include "tandem/data/speech_text.h"
#include "tandem/data/split.h"
#include "tandem/data/transcript.h"
#include "tandem/io/file.h"

namespace tandem::data {
namespace {

std::string quoted(const std::string& path) { return str("'", io::one_line(path), "'"); }

Tensor tensor_of(const std::vector<int64_t>& labels) {
  return from_vector(labels, {static_cast<Dim>(labels.size())});
}

}  // namespace

SpeechSet::SpeechSet(std::string title, std::vector<Utterance> utterances, LogMelOptions sound)
    : title_(std::move(title)), utterances_(std::move(utterances)), sound_(sound) {
  for (const Utterance& utterance : utterances_)
    labels_.push_back(
        transcript_labels(utterance.text, str("data: the text of ", quoted(utterance.path), ": ")));
}

SpeechSet::SpeechSet(std::string title, std::vector<Utterance> utterances, LogMelOptions sound,
                     const TextEncoder& characters)
    : title_(std::move(title)), utterances_(std::move(utterances)), sound_(sound) {
  for (const Utterance& utterance : utterances_) {
    labels_.push_back(characters.encode(utterance.text));
    TD_CHECK(!labels_.back().empty(), "data: the text of ", quoted(utterance.path),
             ": must have a character; it is empty. Leave the clip out.");
  }
}

std::vector<Tensor> SpeechSet::get(int64_t i) const {
  check_index("get", i, size());
  return {read_log_mel(utterances_[static_cast<size_t>(i)].path, sound_),
          tensor_of(labels_[static_cast<size_t>(i)])};
}

std::string SpeechSet::describe() const { return str(title_, ": ", size(), " utterances"); }

int64_t SpeechSet::length(int64_t i) const {
  check_index("length", i, size());
  return frames_in(utterances_[static_cast<size_t>(i)].path, sound_);
}

std::string SpeechSet::sample_name(int64_t i) const {
  check_index("sample_name", i, size());
  return quoted(utterances_[static_cast<size_t>(i)].path);
}

std::vector<Tensor> SoundFiles::get(int64_t i) const {
  check_index("get", i, size());
  return {read_log_mel(paths_[static_cast<size_t>(i)], sound_)};
}

int64_t SoundFiles::length(int64_t i) const {
  check_index("length", i, size());
  return frames_in(paths_[static_cast<size_t>(i)], sound_);
}

std::string SoundFiles::sample_name(int64_t i) const {
  check_index("sample_name", i, size());
  return quoted(paths_[static_cast<size_t>(i)]);
}

void split_off_test(SpeechParts& parts, const OpenOptions& options, const std::string& where) {
  TD_CHECK(parts.train.size() >= 2, where,
           "there must be two utterances or more, one to train on and one to test; got ", parts.train.size(),
           ". Add some.");
  const std::vector<int64_t> alike(parts.train.size());
  const SplitIndices indices = split_indices(alike, options.test_share, options.split_seed);
  std::vector<Utterance> kept;
  for (const int64_t i : indices.test) parts.test.push_back(std::move(parts.train[static_cast<size_t>(i)]));
  for (const int64_t i : indices.train) kept.push_back(std::move(parts.train[static_cast<size_t>(i)]));
  parts.train = std::move(kept);
}

Splits speech_splits(const DatasetInfo& info, const std::string& place, SpeechParts parts,
                     const OpenOptions& options) {
  Splits splits{.train = {}, .test = {}, .info = info, .name = info.name, .where = place};
  const bool is_spoken = options.usual_task == "speech-synthesis";
  splits.task = is_spoken ? options.usual_task : "speech-recognition";
  if (parts.test.empty()) {
    const size_t all = parts.train.size();
    split_off_test(parts, options, str("data ", info.name, " ", quoted(place), ": "));
    splits.split_off = true;
    splits.notices.push_back(str(parts.test.size(), " of ", all,
                                 " utterances were split off for testing (seed ", options.split_seed, ")."));
  }
  const LogMelOptions sound = is_spoken ? tacotron2_sound() : deepspeech2_sound();
  if (is_spoken) splits.text = options.text_encoder ? options.text_encoder : speech_characters();
  const auto set = [&](const char* part, std::vector<Utterance>& utterances) {
    const std::string title = str(info.title, ", ", part);
    return is_spoken ? std::make_shared<SpeechSet>(title, std::move(utterances), sound, *splits.text)
                     : std::make_shared<SpeechSet>(title, std::move(utterances), sound);
  };
  const bool has_valid = !parts.valid.empty();
  splits.train = set("train", parts.train);
  splits.test = set("test", parts.test);
  if (has_valid) splits.valid = set("valid", parts.valid);
  splits.sound = sound;
  splits.info.classes = is_spoken ? 0 : kTranscriptLabels;
  splits.info.sample_shape[1] = sound.bins();
  splits.info.train_size = splits.train->size();
  splits.info.test_size = splits.test->size();
  return splits;
}

}  // namespace tandem::data
