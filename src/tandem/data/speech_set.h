// Recorded speech and what was said: files on disk as a data set. Features are computed when a sample is asked for.
#pragma once

#include <string>
#include <vector>

#include "tandem/data/log_mel.h"
#include "tandem/data/registry.h"

namespace tandem::data {

/// A file of sound, and what is said in it.
struct Utterance {
  std::string path, text;
};

/// {features f32 (frames, bins), labels i64 (count)} of utterances (log_mel.h, transcript.h).
class SpeechSet final : public Dataset {
 public:
  /// Throws Error for a text that is none (transcript_labels), by its file.
  SpeechSet(std::string title, std::vector<Utterance> utterances, LogMelOptions sound);
  /// With characters (speech_text.h) for labels. Throws Error for a text that has none, by its file.
  SpeechSet(std::string title, std::vector<Utterance> utterances, LogMelOptions sound,
            const TextEncoder& characters);
  int64_t size() const override { return static_cast<int64_t>(utterances_.size()); }
  std::vector<Tensor> get(int64_t i) const override;
  std::string describe() const override;
  /// Frames. Reads no more than the head of the file.
  int64_t length(int64_t i) const override;
  std::string sample_name(int64_t i) const override;

 private:
  std::string title_;
  std::vector<Utterance> utterances_;
  std::vector<std::vector<int64_t>> labels_;
  LogMelOptions sound_;
};

/// Files to be transcribed: {features f32 (frames, bins)}.
class SoundFiles final : public Dataset {
 public:
  SoundFiles(std::vector<std::string> paths, LogMelOptions sound) : paths_(std::move(paths)), sound_(sound) {}
  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }
  std::vector<Tensor> get(int64_t i) const override;
  int64_t length(int64_t i) const override;
  std::string sample_name(int64_t i) const override;

 private:
  std::vector<std::string> paths_;
  LogMelOptions sound_;
};

/// The parts of a set of utterances.
struct SpeechParts {
  std::vector<Utterance> train, valid = {}, test = {};
};
/// Sets for speech recognition, with DeepSpeech2's features, or, where `usual_task` is speech-synthesis, for that, with Tacotron 2's. Where there are none for testing, some are split off. `place` is where they
/// were read from.
Splits speech_splits(const DatasetInfo& info, const std::string& place, SpeechParts parts,
                     const OpenOptions& options);
/// Moves a share of what is there for training into the test part. Throws Error, beginning with `where`, for fewer than two.
void split_off_test(SpeechParts& parts, const OpenOptions& options, const std::string& where);

}  // namespace tandem::data
