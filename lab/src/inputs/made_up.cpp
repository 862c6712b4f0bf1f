#include "lab/src/inputs/made_up.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "lab/src/protocol/hash.h"
#include "tandem/core/error.h"
#include "tandem/ops/create.h"

namespace tandem::lab {
namespace {

// A target is a sum over a row, or over all rows. Of many numbers only a few are summed, evenly spaced: a large target would
// otherwise take minutes.
constexpr int64_t kManyTerms = 64, kFewTerms = 8;
int64_t terms_of(int64_t numbers) { return numbers > kManyTerms ? kFewTerms : numbers; }
// Of very many classes only a few occur, evenly spaced.
constexpr int64_t kManyClasses = 1 << 14, kFewClasses = 64;

constexpr int64_t kGrid = 4;  // a pattern is a grid of this many by this many values, interpolated

uint32_t stream_of(int64_t sample, uint64_t seed, bool is_test) {
  return hashed(static_cast<uint32_t>(sample), static_cast<uint32_t>(seed) * 2 + (is_test ? 1 : 0));
}

class Patterns final : public MadeUp {
 public:
  Patterns(const Dims& shape, int64_t classes, uint64_t seed, bool is_test)
      : shape_(shape), classes_(classes), seed_(seed), is_test_(is_test) {}

  std::vector<Tensor> get(int64_t i) const override {
    const uint32_t stream = stream_of(i, seed_, is_test_);
    const int64_t label = hashed(stream, 1) % static_cast<uint32_t>(classes_);
    const float strength = 1.25f + 0.5f * hashed_unit(2, stream);
    const Tensor image = empty(shape_);
    float* out = image.data<float>();
    uint32_t at = 0;
    for (int64_t c = 0; c < shape_[0]; ++c)
      for (int64_t y = 0; y < shape_[1]; ++y)
        for (int64_t x = 0; x < shape_[2]; ++x, ++at)
          out[at] = strength * pattern(label, c, y, x) + 0.9f * hashed_unit(at + 16, stream);
    return {image, from_vector<int64_t>({label}, {})};
  }

 private:
  float corner(int64_t label, int64_t c, int64_t row, int64_t column) const {
    const int64_t place = ((label * shape_[0] + c) * (kGrid + 1) + row) * (kGrid + 1) + column;
    return 1.9f * hashed_unit(static_cast<uint32_t>(place), static_cast<uint32_t>(seed_) ^ 0x5A17u);
  }
  /// Interpolates between the four corners of a grid cell.
  float pattern(int64_t label, int64_t c, int64_t y, int64_t x) const {
    const auto place = [](int64_t at, int64_t size) {
      return static_cast<float>(at * kGrid) / static_cast<float>(size);
    };
    const float fy = place(y, shape_[1]), fx = place(x, shape_[2]);
    const auto row = static_cast<int64_t>(fy), column = static_cast<int64_t>(fx);
    const float v = fy - static_cast<float>(row), u = fx - static_cast<float>(column);
    const float upper = corner(label, c, row, column) * (1 - u) + corner(label, c, row, column + 1) * u;
    const float lower =
        corner(label, c, row + 1, column) * (1 - u) + corner(label, c, row + 1, column + 1) * u;
    return upper * (1 - v) + lower * v;
  }

  Dims shape_;
  int64_t classes_;
  uint64_t seed_;
  bool is_test_;
};

/// An input as rows of numbers, along its first axis.
struct Rows {
  int64_t rows = 1, width = 1;
  std::vector<float> values;
  int64_t true_rows = 1;
};

class AnyKind final : public MadeUp {
 public:
  AnyKind(const Workload& workload, const Network& network, uint64_t seed, bool is_test)
      : targets_(workload.targets),
        terms_(workload.loss_terms()),
        inputs_(network.line.inputs),
        is_trimmed_(!workload.trim.empty()),
        seed_(seed),
        is_test_(is_test) {
    for (const zoo::InputDescription& input : inputs_) {
      below_.push_back(embedding_rows(network, input.name));
      if (input.shape.rank() > 0) longest_ = std::max(longest_, input.shape[0]);
    }
    for (const zoo::InputDescription& input : inputs_)
      if (is_length(input)) {
        const auto range = network.ranges.find(input.name);
        mosts_[input.name] = range == network.ranges.end() ? longest_ : range->second.most;
      }
    for (const Json& term : terms_) {
      const std::string lengths = term.value("lengths", "");
      if (term["kind"] != "ctc" && targets_.contains(lengths))
        mosts_[lengths] = targets_[term["target"].get<std::string>()]["shape"][0].get<int64_t>();
    }
  }

  std::vector<Tensor> get(int64_t i) const override {
    const uint32_t stream = stream_of(i, seed_, is_test_);
    // One draw for all lengths: a sample that is long in one input is long in the others.
    const int64_t drawn = mosts_.empty() ? longest_
                          : is_trimmed_  ? spread_draw(stream)
                                         : hashed(3, stream) % static_cast<uint32_t>(longest_);
    std::vector<Tensor> sample;
    std::vector<Rows> known;
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const zoo::InputDescription& input = inputs_[k];
      if (is_length(input)) {
        sample.push_back(from_vector<int64_t>({length_of(mosts_.at(input.name), drawn)}, {}));
        continue;
      }
      Rows rows{
          input.shape[0], size_of(input.shape) / input.shape[0], {}, true_places(input.shape[0], drawn)};
      const Tensor tensor = empty(input.shape, input.dtype);
      const uint32_t own = stream + 101 * static_cast<uint32_t>(k + 1);
      for (int64_t at = 0; at < tensor.size(); ++at) {
        const bool is_true = at / rows.width < rows.true_rows;
        const uint32_t place = static_cast<uint32_t>(at);
        if (input.dtype == DType::i64) {
          const int64_t word =
              is_true ? hashed(place, own) % static_cast<uint32_t>(std::max<int64_t>(1, below_[k])) : 0;
          tensor.data<int64_t>()[at] = word;
          rows.values.push_back(is_true ? hashed_unit(static_cast<uint32_t>(word), 77) : 0);
        } else {
          tensor.data<float>()[at] = is_true ? 1.7f * hashed_unit(place, own) : 0;
          rows.values.push_back(tensor.data<float>()[at]);
        }
      }
      known.push_back(std::move(rows));
      sample.push_back(tensor);
    }
    uint32_t number = 0;
    for (const auto& [name, rule] : targets_.items())
      sample.push_back(target(name, rule, known, drawn, number++));
    return sample;
  }

 private:
  static bool is_length(const zoo::InputDescription& input) {
    return input.dtype == DType::i64 && input.shape.rank() == 0;
  }
  /// The cube of an evenly drawn number: most samples are short and a few long, so that the longest sample differs from batch to
  /// batch. With evenly drawn lengths the longest sample of nearly every batch would be about as long as possible.
  int64_t spread_draw(uint32_t stream) const {
    const uint64_t u = hashed(3, stream);
    return static_cast<int64_t>((((u * u) >> 32) * u >> 32) * static_cast<uint64_t>(longest_) >> 32);
  }
  /// The drawn length of a field with lengths up to `most`; at least 1.
  int64_t length_of(int64_t most, int64_t drawn) const { return 1 + drawn * most / longest_; }
  /// How many places of a first axis hold data and no padding: all, unless a length says otherwise.
  int64_t true_places(int64_t places, int64_t drawn) const {
    for (const auto& [name, most] : mosts_)
      if (most == places) return length_of(most, drawn);
    return places;
  }
  /// The term of the loss that has this target; null if none has.
  const Json* term_of(const std::string& target) const {
    for (const Json& term : terms_)
      if (term["target"] == target) return &term;
    return nullptr;
  }
  /// How many labels a target of ctc has: one for every four steps that count.
  int64_t labels_of(const Json& term, int64_t most, int64_t drawn) const {
    const int64_t stride = term.value("stride", int64_t{1}),
                  length = length_of(mosts_.at(term["lengths"].get<std::string>()), drawn);
    return std::clamp<int64_t>((length + stride - 1) / stride / 4, 1, most);
  }

  /// The weighted sum number k at a place of a target whose first axis has `places`.
  float value(const std::vector<Rows>& known, int64_t places, int64_t place, uint32_t k) const {
    float sum = 0;
    for (size_t r = 0; r < known.size(); ++r) {
      const Rows& rows = known[r];
      const auto weight = [&](int64_t column, uint32_t lag) {
        return hashed_unit(static_cast<uint32_t>(column) * 2 + lag,
                           static_cast<uint32_t>(seed_) + 1009 * (k + 1) + 31 * static_cast<uint32_t>(r));
      };
      const int64_t columns = terms_of(rows.width), lines = terms_of(rows.true_rows);
      const float scale = 1.0f / std::sqrt(static_cast<float>(columns));
      for (int64_t i = 0; i < columns; ++i) {
        const int64_t c = i * rows.width / columns;
        const auto at = [&](int64_t row) { return rows.values[static_cast<size_t>(row * rows.width + c)]; };
        if (rows.rows == places && places > 1) {
          sum += scale * weight(c, 0) * at(place);
          if (place > 0) sum += scale * 0.5f * weight(c, 1) * at(place - 1);
        } else {
          for (int64_t j = 0; j < lines; ++j)
            sum +=
                scale * weight(c, 0) * at(j * rows.true_rows / lines) / std::sqrt(static_cast<float>(lines));
        }
      }
    }
    return sum;
  }

  Tensor target(const std::string& name, const Json& rule, const std::vector<Rows>& known, int64_t drawn,
                uint32_t number) const {
    if (const auto most = mosts_.find(name); most != mosts_.end())
      return from_vector<int64_t>({length_of(most->second, drawn)}, {});
    const std::vector<int64_t> shape = rule.at("shape");
    const Json* const term = term_of(name);
    const bool whole = rule.at("type") == "i64", is_ctc = term && (*term)["kind"] == "ctc",
               is_binary = term && (*term)["kind"] == "bce";
    const Tensor out = empty(Dims(shape), whole ? DType::i64 : DType::f32);
    const int64_t places = shape.empty() ? 1 : shape[0], width = out.size() / std::max<int64_t>(1, places);
    const int64_t true_ones = is_ctc ? labels_of(*term, places, drawn) : true_places(places, drawn);
    const int64_t classes = rule.value("below", int64_t{0});
    const int64_t step = classes > kManyClasses ? classes / kFewClasses : 1;
    for (int64_t at = 0; at < out.size(); ++at) {
      const int64_t place = at / width;
      const bool is_true = place < true_ones;
      const uint32_t first = 64 * number + static_cast<uint32_t>(at % width);
      if (!whole) {
        const float number = is_true ? std::tanh(value(known, places, place, first)) : 0;
        out.data<float>()[at] = is_binary ? static_cast<float>(number > 0) : number;
        continue;
      }
      int64_t best = 0;
      float most = -INFINITY;
      for (int64_t k = is_ctc ? 1 : 0; is_true && k < classes; k += step)  // 0 is the blank, not a label
        if (const float v = value(known, places, place, first + 997 * static_cast<uint32_t>(k)); v > most)
          most = v, best = k;
      out.data<int64_t>()[at] = best;
    }
    return out;
  }

  Json targets_, terms_;
  std::vector<zoo::InputDescription> inputs_;
  std::vector<int64_t> below_;
  std::map<std::string, int64_t> mosts_;  // the largest value of each input and target that is a length
  int64_t longest_ = 1;
  bool is_trimmed_;
  uint64_t seed_;
  bool is_test_;
};

}  // namespace

Tensor make_up_photograph(int64_t number, uint64_t seed) {
  const uint32_t stream = stream_of(number, seed, false);
  const int64_t height = number % 3 == 2 ? 500 : 375, width = number % 3 == 2 ? 375 : 500;
  const Tensor picture = empty({3, height, width}, DType::u8);
  const auto smooth = [&](int64_t c, double y, double x, uint32_t octave) {
    const auto corner = [&](int64_t row, int64_t column) {
      return double{hashed_unit(static_cast<uint32_t>((row * 512 + column) * 3 + c), stream + octave)};
    };
    const auto row = static_cast<int64_t>(y), column = static_cast<int64_t>(x);
    const double v = y - static_cast<double>(row), u = x - static_cast<double>(column);
    return (corner(row, column) * (1 - u) + corner(row, column + 1) * u) * (1 - v) +
           (corner(row + 1, column) * (1 - u) + corner(row + 1, column + 1) * u) * v;
  };
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x) {
        const auto fy = static_cast<double>(y), fx = static_cast<double>(x);
        double value = 128 + 80 * smooth(c, fy / 120, fx / 120, 1) + 35 * smooth(c, fy / 24, fx / 24, 2) +
                       18 * smooth(c, fy / 5, fx / 5, 3);
        for (uint32_t disc = 0; disc < 2; ++disc) {
          const double cy = static_cast<double>(height) * (0.5 + 0.4 * hashed_unit(disc, stream + 4)),
                       cx = static_cast<double>(width) * (0.5 + 0.4 * hashed_unit(disc, stream + 5)),
                       radius = 60 + 40 * double{hashed_unit(disc, stream + 6)};
          if ((fy - cy) * (fy - cy) + (fx - cx) * (fx - cx) < radius * radius)
            value = 0.5 * value + 64 + 60 * hashed_unit(3 * disc + static_cast<uint32_t>(c), stream + 7);
        }
        const int64_t at = (c * height + y) * width + x;
        value += 6 * hashed_unit(static_cast<uint32_t>(at), stream + 8);
        picture.data<uint8_t>()[at] = static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
      }
  return picture;
}

std::unique_ptr<MadeUp> make_up(const Workload& workload, const Network& network, uint64_t seed,
                                bool is_test) {
  const auto& inputs = network.line.inputs;
  if (inputs.size() == 1 && inputs[0].shape.rank() == 3 && inputs[0].dtype == DType::f32 &&
      workload.targets.size() == 1 && workload.classes() > 0 && workload.targets.begin()->at("shape").empty())
    return std::make_unique<Patterns>(inputs[0].shape, workload.classes(), seed, is_test);
  return std::make_unique<AnyKind>(workload, network, seed, is_test);
}

}  // namespace tandem::lab
