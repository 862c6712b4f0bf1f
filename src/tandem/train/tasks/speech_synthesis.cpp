// Speech from text, as frames of a mel spectrogram: samples {frames f32 (frames, mels), characters i64 (length)} of different lengths.
// A model takes the characters (n, length), how many of them are true (n), the frames (n, frames, mels) and how many of those are (n);
// it gives the frames before and after its last correction, a logit for "this is the last one" (n, frames), and how much each frame
// attends to each character (n, frames, length).
#include <algorithm>

#include "tandem/core/shortest.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/lengths.h"
#include "tandem/ops/loss.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/train/plot.h"
#include "tandem/train/task.h"
#include "tandem/zoo/tacotron2.h"

namespace tandem {
namespace {

constexpr const char* kName = "speech-synthesis";
// Batches are padded to a few lengths of frames (data/buckets.h), and texts with them: to the frames divided by this, which fast speech
// has as frames per character, or to a multiple of that, so that there are few shapes.
constexpr int64_t kFramesPerCharacter = 4;
// How far from the diagonal attention counts as near it, as a share of the text: even attention has 0.28 of its weight there.
constexpr double kNearDiagonal = 0.15;
constexpr double kGuidedWidth = 0.2;  // of the band in which guided attention lets it be
// How much the one frame of a clip where the gate must open counts beside each of the hundreds where it must stay shut, while training:
// with 1 it stays shut for as long as "never" is a good guess. (Padding as frames with an open gate is another recipe; of four clips the
// gate then learned that the frame before is zeros, which speech that is being made never has.)
constexpr double kGateWeight = 10;

int64_t padded_characters(int64_t longest, int64_t frames) {
  const int64_t step = (frames - 1) / kFramesPerCharacter + 1;
  return (std::max<int64_t>(longest, 1) - 1) / step * step + step;
}

/// `measured`, each (1) of a batch: squared errors and how many numbers they are of, gates that were right and how many there were, clips of
/// which all were and how many there were, weight of the attention near the diagonal.
class SpeechMeter final : public Meter {
 public:
  void add(const Named& measured) override {
    for (size_t field = 0; field < sums_.size(); ++field)
      for (const double value : cast(measured[field], DType::f64).to_vector<double>()) sums_[field] += value;
  }
  void finish(Metrics& metrics) const override {
    const auto [errors, numbers, right, frames, ended, clips, near] = sums_;
    if (frames == 0) return;
    metrics.add("mel_loss", errors / numbers);
    metrics.add("gate_accuracy", right / frames);
    metrics.add("end_accuracy", ended / clips);
    metrics.add("diagonality", near / frames);
  }

 private:
  std::array<double, 7> sums_ = {};
};

class SpeechSynthesis final : public Task {
 public:
  explicit SpeechSynthesis(double guided) : guided_(guided) {
    TD_CHECK(guided >= 0 && guided <= 1000, "guided-attention: must be a number from 0 to 1000; got ", guided,
             ".");
  }
  std::string name() const override { return kName; }
  TaskInput input_kind() const override { return TaskInput::text; }
  TaskAnswer answer_kind() const override { return TaskAnswer::speech; }
  std::vector<int64_t> outputs(const data::Splits&) const override { return {}; }
  std::string settings() const override {
    return str("gate weight ", kGateWeight, guided_ == 0 ? "" : ", guided attention " + shortest(guided_));
  }
  std::vector<data::Field> fields() const override {
    return {{"input"}, {"length", data::Role::length}, {"mels"}, {"frames", data::Role::length}};
  }

  /// A sample to speak has characters alone.
  Named collate(const data::Dataset& set, std::span<const int64_t> indices, int64_t epoch,
                int64_t length) const override {
    std::vector<Tensor> characters, mels;
    std::vector<int64_t> lengths, frames;
    int64_t longest = 0;
    for (const int64_t i : indices) {
      const std::vector<Tensor> sample = data::sample_at(set, i, epoch);
      const bool has_mels = !sample.empty() && sample[0].rank() == 2 && is_floating(sample[0].dtype());
      const size_t at = has_mels ? 1 : 0;
      TD_CHECK(sample.size() > at && sample[at].rank() == 1 && is_integer(sample[at].dtype()) &&
                   sample[at].size(0) >= 1,
               "data: a sample of ", kName,
               " must be frames (frames, mels) and characters, whole numbers (length), or these alone; ",
               set.sample_name(i), " is not.");
      characters.push_back(sample[at]);
      lengths.push_back(sample[at].size(0));
      longest = std::max(longest, lengths.back());
      if (!has_mels) continue;
      mels.push_back(sample[0]);
      frames.push_back(sample[0].size(0));
    }
    const auto count = static_cast<int64_t>(indices.size());
    const bool has_mels = mels.size() == characters.size();
    const int64_t room = has_mels ? padded_characters(longest, length) : std::max(longest, length);
    const Tensor input = data::pad_stack(characters, room, 0), each = from_vector(lengths, {count});
    if (!has_mels) return {{"input", input}, {"length", each}};
    return {{"input", input},
            {"length", each},
            {"mels", data::pad_stack(mels, length, 0)},
            {"frames", from_vector(frames, {count})}};
  }
  std::vector<int64_t> lengths(const data::Dataset& set) const override {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < set.size(); ++i) out.push_back(set.length(i));
    return out;
  }
  int64_t test_batch() const override { return 32; }
  /// input: (characters).
  Named made_up_batch(const Dims& input, int64_t batch) const override {
    const int64_t frames = times_capped(kFramesPerCharacter, input[0]);
    return {{"input", zeros({batch, input[0]}, DType::i64)},
            {"length", full({batch}, static_cast<double>(input[0]), DType::i64)},
            {"mels", zeros({batch, frames, zoo::Tacotron2Options{}.mels})},
            {"frames", full({batch}, static_cast<double>(frames), DType::i64)}};
  }

  Named forward(nn::Module& model, const Named& batch, Named&) const override {
    const std::vector<Tensor> out =
        model(std::vector<Tensor>{batch["input"], batch["length"], batch["mels"], batch["frames"]});
    const Dims mels = batch["mels"].shape(), gates{mels[0], mels[1]};
    TD_CHECK(out.size() == 4 && out[0].shape() == mels && out[1].shape() == mels && out[2].shape() == gates &&
                 out[3].shape() == (Dims{mels[0], mels[1], batch["input"].size(1)}),
             kName, ": the model must give frames twice, ", mels, ", gates ", gates,
             " and weights of its attention (n, frames, length); it gives something else.");
    return {{"first_mels", out[0]}, {"mels", out[1]}, {"gates", out[2]}, {"attention", out[3]}};
  }
  Tensor loss(const Named& out, const Named& batch) const override {
    const Tensor plain = errors(out, batch, kGateWeight);
    return guided_ == 0 ? plain : plain + off_diagonal(out["attention"], batch) * guided_;
  }
  Tensor test_loss(const Named& out, const Named& batch) const override { return errors(out, batch, 1); }
  Tensor weight(const Named& batch) const override { return sum(batch["frames"]); }

  Named measure(const Named& out, const Named& batch) const override {
    const Tensor within = true_frames(batch), frames = sum(batch["frames"]);
    const Tensor right = cast(
        logical_and(equal(greater(out["gates"], 0.0), greater(last_frames(batch, out["gates"].dtype()), 0.0)),
                    within),
        DType::i64);
    const Tensor ended = cast(equal(sum(right, {1}), batch["frames"]), DType::i64);
    const Tensor near =
        where(logical_and(less_equal(from_diagonal(batch), kNearDiagonal), unsqueeze(within, 2)),
              out["attention"], 0.0);
    const auto one = [](const Tensor& x) { return reshape(x, {1}); };
    return {{"errors", one(sum(squares(out["mels"], batch["mels"], unsqueeze(within, 2))))},
            {"numbers", one(frames * batch["mels"].size(2))},
            {"right", one(sum(right))},
            {"frames", one(frames)},
            {"ended", one(sum(ended))},
            {"clips", one(sum(ones_like(batch["frames"])))},
            {"near", one(sum(near))}};
  }
  std::unique_ptr<Meter> meter() const override { return std::make_unique<SpeechMeter>(); }
  std::vector<MetricInfo> metrics() const override {
    return {{"mel_loss", false, false},
            {"gate_accuracy", true, true},
            {"end_accuracy", true, true},
            {"diagonality", true, true}};
  }
  bool draws() const override { return true; }
  std::vector<Picture> pictures(nn::Module& model, const Named& batch) const override {
    Named no_state;
    const int64_t frames = batch["frames"][0].item<int64_t>(), length = batch["length"][0].item<int64_t>();
    const Tensor weights =
        slice(slice(forward(model, batch, no_state)["attention"][0], 0, 0, frames), 1, 0, length);
    // Of the largest: attention that is still spread over a long text would otherwise be an empty picture.
    const Tensor shares =
        cast(transpose(weights, 0, 1), DType::f64) / maximum(cast(max(weights), DType::f64), 1e-30);
    return {{"attention", heat_map({.title = "Attention, of the largest weight",
                                    .x_label = "frame",
                                    .y_label = "character",
                                    .columns = frames,
                                    .rows = length,
                                    .values = clone(shares).to_vector<double>()})}};
  }

  bool generates() const override { return true; }
  /// The frames (n, longest, mels), their number i64 (n), and whether the gate ended them i64 (n).
  std::vector<Tensor> generate(nn::Module& model, const Named& batch) const override {
    auto* speaker = dynamic_cast<zoo::Tacotron2*>(&model);
    TD_CHECK(speaker, kName, ": the model must be a tacotron2 to speak; it is a ", model.type_name(), ".");
    const zoo::Tacotron2::Speech made = speaker->speak(batch["input"], batch["length"]);
    const std::vector<int64_t> ended(made.ended.begin(), made.ended.end());
    const Dims n{samples_of(batch)};
    return {made.mels, from_vector(made.lengths, n), from_vector(ended, n)};
  }

 private:
  /// bool (n, frames).
  static Tensor true_frames(const Named& batch) {
    return within_lengths(kName, batch["frames"], batch["mels"].size(0), batch["mels"].size(1), 1);
  }
  /// Means over the true frames: squared errors of the frames before and after the last correction, and the gates'.
  static Tensor errors(const Named& out, const Named& batch, double gate_weight) {
    const Tensor within = true_frames(batch), count = cast(sum(batch["frames"]), out["first_mels"].dtype());
    const Tensor mels = batch["mels"], every = unsqueeze(within, 2);
    const auto error = [&](const Tensor& made) {
      return sum(squares(made, mels, every)) / (count * static_cast<double>(mels.size(2)));
    };
    const Tensor gate = binary_cross_entropy_with_logits(
        out["gates"], last_frames(batch, out["gates"].dtype()),
        {.pos_weight = full({}, gate_weight, out["gates"].dtype(), out["gates"].device()),
         .reduction = Reduction::none});
    return error(out["first_mels"]) + error(out["mels"]) + sum(where(within, gate, 0.0)) / count;
  }
  static Tensor squares(const Tensor& made, const Tensor& mels, const Tensor& within) {
    const Tensor error = where(within, made - cast(mels, made.dtype()), 0.0);
    return error * error;
  }
  /// 1 at the last true frame and behind it, (n, frames).
  static Tensor last_frames(const Named& batch, DType dtype) {
    const Tensor at = unsqueeze(arange(batch["mels"].size(1), DType::i64, batch["mels"].device()), 0);
    return cast(greater_equal(at, unsqueeze(batch["frames"], 1) - 1), dtype);
  }
  /// How far each character is from where speech of even pace would be, as a share of the text, (n, frames, length).
  static Tensor from_diagonal(const Named& batch) {
    const auto places = [&](Dim count, const Tensor& lengths) {  // from 0 to 1, (n, count)
      const Tensor at = cast(arange(count, DType::i64, lengths.device()), DType::f32) + 0.5;
      return unsqueeze(at, 0) / unsqueeze(cast(lengths, DType::f32), 1);
    };
    const Tensor frames = places(batch["mels"].size(1), batch["frames"]),
                 characters = places(batch["input"].size(1), batch["length"]);
    return abs(unsqueeze(frames, 2) - unsqueeze(characters, 1));
  }
  /// The mean over the true frames of what guided attention (Tachibana et al. 2018) lays on weights far from the diagonal.
  static Tensor off_diagonal(const Tensor& weights, const Named& batch) {
    const Tensor far = from_diagonal(batch);
    const Tensor cost = 1.0 - exp(far * far * (-0.5 / (kGuidedWidth * kGuidedWidth)));
    const Tensor all = where(unsqueeze(true_frames(batch), 2), weights * cast(cost, weights.dtype()), 0.0);
    return sum(all) / cast(sum(batch["frames"]), weights.dtype());
  }

  double guided_;
};

const TaskRow kRow(kName, "speech from text", [](const TaskOptions& options) -> TaskPtr {
  TD_CHECK(options.class_weights.empty() && !options.ignore_index, kName,
           ": has no classes to weigh or leave out.");
  return std::make_shared<SpeechSynthesis>(options.guided_attention);
});

}  // namespace
}  // namespace tandem
