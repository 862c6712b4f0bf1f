// Speech made by a formula, in the shapes of LibriSpeech: features of 161 frequencies, 1 to 16 seconds, and 15 letters a second. Each letter has frequencies of
// its own, so that it can be learned. It needs no files, and has the same values on every machine. Every random number is a Philox word.
#include "tandem/core/rng.h"
#include "tandem/data/drawn_digits.h"
#include "tandem/data/speech_set.h"
#include "tandem/data/transcript.h"

namespace tandem::data {
namespace {

constexpr uint64_t kSpeechStream = 0x7370656563682073, kLetterStream = 0x6c65747465722073;
constexpr int64_t kShortest = 100, kLongest = 1600;  // frames of 10 ms
constexpr int64_t kLetterFrames = 6;                 // as people speak: 15 letters a second and more

float uniform(uint32_t bits) { return static_cast<float>(bits >> 8) / 16777216.0f; }

class SyntheticSpeech final : public Dataset {
 public:
  SyntheticSpeech(int64_t first, int64_t size)
      : first_(first), size_(size), bins_(deepspeech2_sound().bins()) {}
  int64_t size() const override { return size_; }
  int64_t length(int64_t i) const override {
    check_index("length", i, size_);
    // Most utterances of LibriSpeech are 12 to 16 seconds long: the larger of two draws.
    const PhiloxBlock head = philox(kSpeechStream, counter_of(i));
    const float longer = std::max(uniform(head.x[0]), uniform(head.x[1]));
    return kShortest + static_cast<int64_t>(longer * static_cast<float>(kLongest - kShortest));
  }
  std::vector<Tensor> get(int64_t i) const override {
    const int64_t frames = length(i), letters = frames / kLetterFrames;
    uint64_t counter = counter_of(i) + 1;
    std::vector<int64_t> labels;
    while (static_cast<int64_t>(labels.size()) < letters) {
      const PhiloxBlock block = philox(kSpeechStream, counter++);
      labels.push_back(1 + static_cast<int64_t>(block.x[0] % (kTranscriptLabels - 1)));
    }
    const Tensor features = empty({frames, bins_}, DType::f32);
    auto* out = features.data<float>();
    for (int64_t t = 0; t < frames; ++t) {
      // The last frame of a letter is silent, as is the end: a letter said twice is heard twice.
      const int64_t at = t / kLetterFrames;
      const bool is_heard = at < letters && t % kLetterFrames + 1 < kLetterFrames;
      for (int64_t f = 0; f < bins_; f += 4) {
        const PhiloxBlock noise = philox(kSpeechStream, counter++);
        for (int64_t k = 0; k < 4 && f + k < bins_; ++k)
          out[t * bins_ + f + k] =
              uniform(noise.x[k]) - 0.5f + (is_heard ? tone(labels[static_cast<size_t>(at)], f + k) : -1.0f);
      }
    }
    return {features, from_vector(labels, {static_cast<Dim>(labels.size())})};
  }
  std::string describe() const override { return str("synthetic librispeech: ", size_, " utterances"); }

 private:
  uint64_t counter_of(int64_t i) const { return static_cast<uint64_t>(first_ + i) << 24; }
  /// How strong frequency f is in a letter: 1 or -1 for eight frequencies together.
  static float tone(int64_t label, int64_t f) {
    const PhiloxBlock block = philox(kLetterStream, static_cast<uint64_t>(label));
    return ((block.x[0] >> ((f / 8) & 31)) & 1) != 0 ? 1.0f : -1.0f;
  }

  int64_t first_, size_, bins_;
};

}  // namespace

Splits open_synthetic_librispeech(const DatasetInfo& info, const OpenOptions&) {
  Splits out{.train = {}, .test = {}, .info = info, .name = info.name, .where = kBuiltIn};
  out.train = std::make_shared<SyntheticSpeech>(0, info.train_size);
  out.test = std::make_shared<SyntheticSpeech>(info.train_size, info.test_size);
  out.task = "speech-recognition";
  out.sound = deepspeech2_sound();
  return out;
}

}  // namespace tandem::data
