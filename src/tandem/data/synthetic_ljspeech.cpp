// Speech made by a formula, in the shapes of LJSpeech: every character has a pattern over the mel bands that lasts for a few frames, so that a
// model can learn which frames belong to which character. It is the same on every machine: every random number is a Philox word.
#include <algorithm>

#include "tandem/core/rng.h"
#include "tandem/data/drawn_digits.h"
#include "tandem/data/registry.h"
#include "tandem/data/speech_text.h"

namespace tandem::data {
namespace {

constexpr uint64_t kClipStream = 0x6c6a737065656368, kVoiceStream = 0x766f696365206f66;
constexpr int64_t kMels = 80, kShortest = 20, kLongest = 180;  // characters
constexpr int64_t kFirstCharacter = 2;                         // behind padding and unknown
constexpr int64_t kLeastFrames = 4, kFrameKinds = 4;           // a character lasts for 4 to 7 frames
constexpr float kQuiet = -9, kLoud = 0;                        // logarithms, as of speech

float between(uint32_t bits, float low, float high) {
  return low + (high - low) * (static_cast<float>(bits >> 8) * 0x1p-24f);
}

/// How long a character lasts, and how loud it is in each band.
struct Voice {
  int64_t frames;
  float bands[kMels];
};
std::vector<Voice> voices(int64_t characters) {
  std::vector<Voice> out(static_cast<size_t>(characters));
  for (size_t c = 0; c < out.size(); ++c) {
    uint64_t counter = static_cast<uint64_t>(c) << 8;
    out[c].frames = kLeastFrames + philox(kVoiceStream, counter++).x[0] % kFrameKinds;
    for (int64_t band = 0; band < kMels; band += 4) {
      const PhiloxBlock block = philox(kVoiceStream, counter++);
      for (size_t k = 0; k < 4; ++k)
        out[c].bands[static_cast<size_t>(band) + k] = between(block.x[k], kQuiet, kLoud);
    }
  }
  return out;
}

/// {frames f32 (frames, 80), characters i64 (length)}.
class SyntheticSpeech final : public Dataset {
 public:
  SyntheticSpeech(int64_t first, int64_t size, int64_t characters)
      : first_(first), size_(size), voices_(voices(characters)) {}
  int64_t size() const override { return size_; }
  std::vector<Tensor> get(int64_t i) const override {
    check_index("get", i, size_);
    Clip clip = clip_of(i);
    const auto length = static_cast<Dim>(clip.characters.size());
    std::vector<float> mels;
    mels.reserve(static_cast<size_t>(clip.frames * kMels));
    for (const int64_t c : clip.characters) {
      const Voice& voice = voices_[static_cast<size_t>(c)];
      for (int64_t frame = 0; frame < voice.frames; ++frame)
        for (int64_t band = 0; band < kMels; band += 4) {
          const PhiloxBlock noise = philox(kClipStream, clip.counter++);
          for (size_t k = 0; k < 4; ++k)
            mels.push_back(voice.bands[static_cast<size_t>(band) + k] + between(noise.x[k], -0.2f, 0.2f));
        }
    }
    return {from_vector(mels, {clip.frames, kMels}), from_vector(clip.characters, {length})};
  }
  int64_t length(int64_t i) const override {
    check_index("length", i, size_);
    return clip_of(i).frames;
  }
  std::string describe() const override { return str("synthetic ljspeech: ", size_, " clips"); }

 private:
  struct Clip {
    std::vector<int64_t> characters;
    int64_t frames = 0;
    uint64_t counter = 0;  // of the random numbers that follow
  };
  Clip clip_of(int64_t i) const {
    Clip clip{.characters = {}, .frames = 0, .counter = static_cast<uint64_t>(first_ + i) << 32};
    const int64_t kinds = static_cast<int64_t>(voices_.size()) - kFirstCharacter;
    const int64_t length = kShortest + philox(kClipStream, clip.counter++).x[0] % (kLongest - kShortest + 1);
    for (int64_t k = 0; k < length; ++k) {
      clip.characters.push_back(kFirstCharacter + philox(kClipStream, clip.counter++).x[0] % kinds);
      clip.frames += voices_[static_cast<size_t>(clip.characters.back())].frames;
    }
    return clip;
  }

  int64_t first_, size_;
  std::vector<Voice> voices_;
};

}  // namespace

Splits open_synthetic_ljspeech(const DatasetInfo& info, const OpenOptions&) {
  Splits out{.train = {}, .test = {}, .info = info, .name = info.name, .where = kBuiltIn};
  out.text = speech_characters();
  const int64_t characters = out.text->vocabulary.size();
  out.train = std::make_shared<SyntheticSpeech>(0, info.train_size, characters);
  out.test = std::make_shared<SyntheticSpeech>(info.train_size, info.test_size, characters);
  out.task = "speech-synthesis";
  return out;
}

}  // namespace tandem::data
