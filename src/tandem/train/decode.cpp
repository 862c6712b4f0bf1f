#include "tandem/train/decode.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/ops/create.h"
#include "tandem/ops/index.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tandem/ops/softmax.h"

namespace tandem {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

void check_options(const char* name, int64_t samples, const DecodeOptions& o) {
  TD_CHECK(
      samples >= 0 && o.longest >= 0 && o.beams >= 1 && o.first >= 0 && o.state_axis >= 0 && o.end >= -1,
      name,
      ": samples, longest, first and state_axis must be at least 0, beams at least 1, end at least -1; got ",
      samples, ", ", o.longest, ", ", o.first, ", ", o.state_axis, ", ", o.beams, " and ", o.end, ".");
  TD_CHECK(std::isfinite(o.length_penalty), name, ": length_penalty must be finite; got ", o.length_penalty,
           ".");
}

/// log-probabilities of the next token of each row, on the host.
struct Next {
  std::vector<double> values;
  int64_t vocabulary = 0;
  const double* row(int64_t r) const { return values.data() + r * vocabulary; }
};

/// temperature: logits are divided by it, the largest of a row first taken off, so that none overflows.
Next next_of(const char* name, const Tensor& logits, int64_t rows, const DecodeOptions& options,
             double temperature = 1) {
  TD_CHECK(logits.defined() && logits.rank() == 2 && logits.size(0) == rows && logits.size(1) >= 1 &&
               is_floating(logits.dtype()),
           name, ": the model must give floating logits (", rows, ", vocabulary); got ", describe(logits),
           ".");
  TD_CHECK(options.end < logits.size(1), name, ": end must be a token of the model's ", logits.size(1),
           ", or -1; got ", options.end, ".");
  Tensor wide = cast(logits, DType::f64);
  if (temperature != 1) wide = (wide - max(wide, {1}, true)) / temperature;
  Next next{log_softmax(wide, 1).to_vector<double>(), logits.size(1)};
  for (size_t i = 0; i < next.values.size(); ++i)
    TD_CHECK(!std::isnan(next.values[i]), name,
             ": the model must give logits that make probabilities; got NaN or an infinity in row ",
             i / static_cast<size_t>(next.vocabulary), ". Look at what the model was given.");
  return next;
}

/// What the model makes of the states must be states again.
void check_state(const char* name, const std::vector<Tensor>& state, size_t count, int64_t rows,
                 int64_t axis) {
  TD_CHECK(state.size() == count, name, ": the model must give as many states as it takes, ", count, "; got ",
           state.size(), ".");
  for (const Tensor& t : state)
    TD_CHECK(t.defined() && t.rank() > axis && t.size(axis) == rows, name, ": states must have ", rows,
             " rows along axis ", axis, ", one for each sequence; got ", describe(t), ".");
}

Tensor token_tensor(const std::vector<int64_t>& tokens, Device device) {
  return to(from_vector<int64_t>(tokens, {static_cast<Dim>(tokens.size())}), device);
}

Device device_of(const std::vector<Tensor>& state) { return state.empty() ? Device{} : state[0].device(); }

/// A beam and a token to go on with.
struct Candidate {
  double log_probability;
  int64_t beam, token;
};

double score_of(double log_probability, size_t length, double penalty) {
  return log_probability / std::pow(static_cast<double>(std::max<size_t>(length, 1)), penalty);
}

}  // namespace

std::vector<std::vector<Decoded>> decode(const DecodeFunction& step, int64_t samples,
                                         const std::vector<Tensor>& given, const DecodeOptions& options) {
  check_options("decode", samples, options);
  TD_CHECK(step, "decode: the function must not be empty.");
  const std::vector<int64_t>& limits = options.longest_each;
  TD_CHECK(limits.empty() || static_cast<int64_t>(limits.size()) == samples,
           "decode: longest_each must have one number for each sample; got ", limits.size(), " for ", samples,
           " samples.");
  for (const int64_t limit : limits)
    TD_CHECK(limit >= 1 && limit <= options.longest, "decode: each of longest_each must be 1 to longest, ",
             options.longest, "; got ", limit, ".");
  const NoGrad off;
  struct Sample {
    std::vector<Decoded> beams;  // so far
    std::vector<Decoded> ended;
  };
  std::vector<Sample> all(static_cast<size_t>(samples));
  for (Sample& s : all) s.beams.resize(1);
  check_state("decode", given, given.size(), samples, options.state_axis);
  std::vector<Tensor> state = given;
  const Device device = device_of(given);
  const size_t wanted = static_cast<size_t>(options.beams);
  const auto by_score = [&](const Decoded& a, const Decoded& b) {
    return score_of(a.log_probability, a.tokens.size(), options.length_penalty) >
           score_of(b.log_probability, b.tokens.size(), options.length_penalty);
  };
  for (int64_t length = 0; length < options.longest; ++length) {
    std::vector<int64_t> tokens;
    for (const Sample& s : all)
      for (const Decoded& b : s.beams) tokens.push_back(b.tokens.empty() ? options.first : b.tokens.back());
    if (tokens.empty()) break;
    DecodeStep made = step(token_tensor(tokens, device), state);
    const Next next = next_of("decode", made.logits, static_cast<int64_t>(tokens.size()), options);
    check_state("decode", made.state, given.size(), static_cast<int64_t>(tokens.size()), options.state_axis);
    std::vector<int64_t> parents;  // rows of the next state
    int64_t row = 0;
    for (size_t n = 0; n < all.size(); ++n) {
      Sample& s = all[n];
      // The best continuations of all beams: twice as many as beams, since up to half of them may end.
      std::vector<Candidate> candidates;
      for (size_t b = 0; b < s.beams.size(); ++b)
        for (int64_t v = 0; v < next.vocabulary; ++v) {
          const double log_probability =
              s.beams[b].log_probability + next.row(row + static_cast<int64_t>(b))[v];
          candidates.push_back({log_probability, static_cast<int64_t>(b), v});
        }
      const size_t kept = std::min(candidates.size(), 2 * wanted);
      const auto better = [](const Candidate& x, const Candidate& y) {
        return x.log_probability != y.log_probability ? x.log_probability > y.log_probability
               : x.beam != y.beam                     ? x.beam < y.beam
                                                      : x.token < y.token;
      };
      std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(kept),
                        candidates.end(), better);
      std::vector<Decoded> beams;
      for (size_t i = 0; i < kept && beams.size() < wanted; ++i) {
        const Candidate& c = candidates[i];
        Decoded now = s.beams[static_cast<size_t>(c.beam)];
        now.log_probability = c.log_probability;
        if (c.token == options.end) {
          if (i < wanted) s.ended.push_back(now);
          continue;
        }
        now.tokens.push_back(c.token);
        beams.push_back(std::move(now));
        parents.push_back(row + c.beam);
      }
      row += static_cast<int64_t>(s.beams.size());
      const bool enough = s.ended.size() >= wanted, is_full = !limits.empty() && length + 1 >= limits[n];
      if (enough || is_full) {
        parents.resize(parents.size() - beams.size());
        if (!enough) std::move(beams.begin(), beams.end(), std::back_inserter(s.ended));
        beams.clear();
      }
      s.beams = std::move(beams);
    }
    state = std::move(made.state);
    bool moved = parents.size() != static_cast<size_t>(row);
    for (size_t i = 0; i < parents.size(); ++i) moved = moved || parents[i] != static_cast<int64_t>(i);
    if (moved)
      for (Tensor& t : state) t = index_select(t, options.state_axis, token_tensor(parents, t.device()));
  }
  std::vector<std::vector<Decoded>> results;
  for (Sample& s : all) {
    for (Decoded& b : s.beams) s.ended.push_back(std::move(b));
    std::stable_sort(s.ended.begin(), s.ended.end(), by_score);
    if (s.ended.size() > wanted) s.ended.resize(wanted);
    results.push_back(std::move(s.ended));
  }
  return results;
}

std::vector<Decoded> decode_sampled(const DecodeFunction& step, int64_t samples,
                                    const std::vector<Tensor>& given, const SampleOptions& sampling,
                                    const DecodeOptions& options) {
  check_options("decode_sampled", samples, options);
  TD_CHECK(step, "decode_sampled: the function must not be empty.");
  TD_CHECK(options.longest_each.empty(),
           "decode_sampled: takes no longest_each. Give longest, which is that of all samples.");
  TD_CHECK(options.beams == 1, "decode_sampled: draws one sequence for each sample; got ", options.beams,
           " beams.");
  TD_CHECK(sampling.temperature > 0 && std::isfinite(sampling.temperature) && sampling.top_k >= 0 &&
               sampling.top_p > 0 && sampling.top_p <= 1,
           "decode_sampled: temperature must be above 0, top_k at least 0 and top_p in 0..1, without 0; got ",
           sampling.temperature, ", ", sampling.top_k, " and ", sampling.top_p, ".");
  const NoGrad off;
  std::vector<Decoded> all(static_cast<size_t>(samples));
  std::vector<bool> ended(all.size(), false);
  check_state("decode_sampled", given, given.size(), samples, options.state_axis);
  std::vector<Tensor> state = given;
  const Device device = device_of(given);
  uint64_t drawn = 0;
  for (int64_t length = 0; length < options.longest && !all.empty(); ++length) {
    if (std::all_of(ended.begin(), ended.end(), [](bool e) { return e; })) break;
    std::vector<int64_t> tokens;
    for (const Decoded& d : all) tokens.push_back(d.tokens.empty() ? options.first : d.tokens.back());
    DecodeStep made = step(token_tensor(tokens, device), state);
    const Next next = next_of("decode_sampled", made.logits, samples, options, sampling.temperature);
    check_state("decode_sampled", made.state, given.size(), samples, options.state_axis);
    for (int64_t n = 0; n < samples; ++n) {
      const size_t at = static_cast<size_t>(n);
      const double u = uniform_from_word64((static_cast<uint64_t>(philox(sampling.seed, drawn).x[0]) << 32) |
                                           philox(sampling.seed, drawn).x[1]);
      ++drawn;  // also for what has ended: the draws of a sample do not depend on when others end
      if (ended[at]) continue;
      const double* const row = next.row(n);
      std::vector<int64_t> order(static_cast<size_t>(next.vocabulary));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return row[a] > row[b]; });
      if (sampling.top_k > 0 && sampling.top_k < next.vocabulary)
        order.resize(static_cast<size_t>(sampling.top_k));
      double mass = 0;
      size_t count = 0;
      while (count < order.size() && (count == 0 || mass < sampling.top_p))
        mass += std::exp(row[order[count++]]);
      double left = u * mass;
      size_t pick = 0;
      while (pick + 1 < count && (left -= std::exp(row[order[pick]])) >= 0) ++pick;
      all[at].log_probability += row[order[pick]];
      if (order[pick] == options.end)
        ended[at] = true;
      else
        all[at].tokens.push_back(order[pick]);
    }
    state = std::move(made.state);
  }
  return all;
}

namespace {

/// The steps on the host, and how many of each sample count.
struct Steps {
  std::vector<double> values;
  Dim samples, classes;
  std::vector<int64_t> lengths;
  double at(int64_t t, int64_t n, int64_t c) const {
    return values[static_cast<size_t>((t * samples + n) * classes + c)];
  }
};
Steps steps_of(const char* name, const Tensor& x, const Tensor& lengths, int64_t blank) {
  TD_CHECK(x.defined() && x.rank() == 3 && x.size(2) >= 1 && is_floating(x.dtype()), name,
           ": log-probabilities must be floating, (T, N, C); got ", describe(x), ".");
  TD_CHECK(blank >= 0 && blank < x.size(2), name, ": the blank must be one of the ", x.size(2),
           " classes; got ", blank, ".");
  Steps steps{cast(x, DType::f64).to_vector<double>(), x.size(1), x.size(2), {}};
  for (const double value : steps.values)
    TD_CHECK(!std::isnan(value), name, ": log-probabilities must be numbers; got NaN.");
  if (!lengths.defined()) {
    steps.lengths.assign(static_cast<size_t>(x.size(1)), x.size(0));
    return steps;
  }
  TD_CHECK(lengths.dtype() == DType::i64 && lengths.shape() == Dims{x.size(1)}, name,
           ": lengths must be i64 (", x.size(1), ",); got ", describe(lengths), ".");
  steps.lengths = lengths.to_vector<int64_t>();
  for (const int64_t length : steps.lengths)
    TD_CHECK(length >= 0 && length <= x.size(0), name, ": every length must be from 0 to ", x.size(0),
             "; got ", length, ".");
  return steps;
}

}  // namespace

std::vector<int64_t> ctc_collapse(std::span<const int64_t> path, int64_t blank) {
  std::vector<int64_t> labels;
  int64_t before = blank;
  for (const int64_t label : path) {
    if (label != blank && label != before) labels.push_back(label);
    before = label;
  }
  return labels;
}

std::vector<std::vector<int64_t>> ctc_greedy(const Tensor& log_probabilities, const Tensor& lengths,
                                             int64_t blank) {
  const Steps steps = steps_of("ctc_greedy", log_probabilities, lengths, blank);
  std::vector<std::vector<int64_t>> results;
  for (Dim n = 0; n < steps.samples; ++n) {
    std::vector<int64_t> path;
    for (int64_t t = 0; t < steps.lengths[static_cast<size_t>(n)]; ++t) {
      int64_t best = 0;
      for (int64_t c = 1; c < steps.classes; ++c)
        if (steps.at(t, n, c) > steps.at(t, n, best)) best = c;
      path.push_back(best);
    }
    results.push_back(ctc_collapse(path, blank));
  }
  return results;
}

std::vector<std::vector<int64_t>> ctc_beams(const Tensor& log_probabilities, const Tensor& lengths,
                                            int64_t beams, int64_t blank) {
  TD_CHECK(beams >= 1, "ctc_beams: there must be at least one beam; got ", beams, ".");
  const Steps steps = steps_of("ctc_beams", log_probabilities, lengths, blank);
  const auto plus = [](double a, double b) {
    const double top = std::max(a, b);
    return top == kNever ? kNever : top + std::log1p(std::exp(std::min(a, b) - top));
  };
  // Of each beginning: the probability of all its paths that end with a blank, and of those that end with its last label.
  struct Mass {
    double blank = kNever, label = kNever;
  };
  using Beginnings = std::map<std::vector<int64_t>, Mass>;
  std::vector<std::vector<int64_t>> results;
  for (Dim n = 0; n < steps.samples; ++n) {
    Beginnings now;
    now[{}].blank = 0;
    for (int64_t t = 0; t < steps.lengths[static_cast<size_t>(n)]; ++t) {
      Beginnings next;
      for (const auto& [labels, mass] : now) {
        const double either = plus(mass.blank, mass.label);
        Mass& same = next[labels];
        same.blank = plus(same.blank, either + steps.at(t, n, blank));
        if (!labels.empty()) same.label = plus(same.label, mass.label + steps.at(t, n, labels.back()));
        for (int64_t c = 0; c < steps.classes; ++c) {
          if (c == blank) continue;
          std::vector<int64_t> longer = labels;
          longer.push_back(c);
          Mass& more = next[longer];
          // Said twice in a row a label needs a blank between.
          const double from = !labels.empty() && labels.back() == c ? mass.blank : either;
          more.label = plus(more.label, from + steps.at(t, n, c));
        }
      }
      std::vector<std::pair<double, const std::vector<int64_t>*>> order;
      for (const auto& [labels, mass] : next) order.push_back({plus(mass.blank, mass.label), &labels});
      std::stable_sort(order.begin(), order.end(),
                       [](const auto& a, const auto& b) { return a.first > b.first; });
      if (order.size() > static_cast<size_t>(beams)) order.resize(static_cast<size_t>(beams));
      Beginnings kept;
      for (const auto& [total, labels] : order) kept[*labels] = next[*labels];
      now = std::move(kept);
    }
    const std::vector<int64_t>* best = nullptr;
    double most = kNever;
    for (const auto& [labels, mass] : now)
      if (const double total = plus(mass.blank, mass.label); !best || total > most)
        most = total, best = &labels;
    results.push_back(*best);
  }
  return results;
}

}  // namespace tandem
