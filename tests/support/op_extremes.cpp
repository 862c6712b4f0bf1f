// Op cases at values that random numbers never hit: exact zeros, where gradient rules have branches, and integers that
// neither double nor i64 can hold.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tests/support/op_case.h"

namespace tandem::testing {

namespace {

// ---- zeros

bool holds_zero(const CaseInput& input) {
  return input.kind == CaseInput::real && input.low <= 0 && input.high > 0 && size_of(input.shape) > 0;
}

/// The case's values with some zeros, up to six in each input, the first one of two inputs at once. (A third input stays as it
/// is: a number that is clamped between two bounds that are 0 has no slope.)
std::vector<Array> values_with_zeros(const OpCase& op_case) {
  std::vector<Array> values = case_values(op_case, DType::f64);
  int with_zeros = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!holds_zero(op_case.inputs[i]) || with_zeros++ >= 2) continue;
    int zeros = 0;
    for (int64_t j = 0; j < values[i].size() && zeros < 6; ++j) {
      if (j > 0 && hash32(static_cast<uint32_t>(j), 900 + static_cast<uint32_t>(i)) % 3 != 0) continue;
      values[i][j] = 0;
      ++zeros;
    }
  }
  return values;
}

std::vector<Tensor> leaves_of(const OpCase& op_case, const std::vector<Array>& values) {
  std::vector<Tensor> in = case_tensors(op_case, DType::f64);
  for (size_t i = 0; i < in.size(); ++i)
    if (op_case.inputs[i].kind == CaseInput::real)
      in[i] = to_tensor(values[i], DType::f64).set_requires_grad();
  return in;
}

std::vector<Tensor> real_ones(const OpCase& op_case, const std::vector<Tensor>& in) {
  std::vector<Tensor> wanted;
  for (size_t i = 0; i < in.size(); ++i)
    if (op_case.inputs[i].kind == CaseInput::real) wanted.push_back(in[i]);
  return wanted;
}

/// A linear function of the result: a gradient of it is NaN only where a rule makes it so.
Tensor weighed(const Tensor& y) { return sum(mul(y, to_tensor(hash_array(y.shape(), 77), DType::f64))); }

/// A linear function of the first gradients of one that is not linear: its gradient is of second order. The linear term
/// keeps corners of y, which y · y alone would smooth.
Tensor weighed_gradient(const OpCase& op_case, const std::vector<Tensor>& in, bool create_graph) {
  const Tensor y = run_case(op_case, in);
  BackwardOptions options;
  options.create_graph = create_graph;
  Tensor total = zeros({}, DType::f64);
  uint32_t salt = 500;
  for (const Tensor& g : grad(weighed(mul(y, y) + y), real_ones(op_case, in), {}, options, true))
    total = total + sum(mul(g, to_tensor(hash_array(g.shape(), salt++), DType::f64)));
  return total;
}

/// Whether slopes are one: from both sides, and over steps of two lengths, of which a jump shows two.
bool agree(double a, double b) {
  return std::isfinite(a) && std::isfinite(b) && std::abs(a - b) <= 1e-4 * (1 + std::abs(a) + std::abs(b));
}

/// Compares the gradients of input i, `found`, with differences of f at its zeros, where f is smooth there: where it has a
/// corner, any slope between is right.
void compare_at_zeros(const std::string& what, std::vector<Array> values, size_t i, const Array& found,
                      const std::function<double(const std::vector<Array>&)>& f) {
  const double here = f(values);
  std::vector<size_t> zeros;
  for (size_t j = 0; j < values[i].values.size(); ++j)
    if (values[i].values[j] == 0) zeros.push_back(j);
  const auto slope = [&](std::span<const size_t> places, double by) {
    for (const size_t j : places) values[i].values[j] = by;
    const double there = f(values);
    for (const size_t j : places) values[i].values[j] = 0;
    return (there - here) / by;
  };
  constexpr double kStep = 1e-6;
  double total = 0;
  for (const size_t& j : zeros) {
    const std::span<const size_t> place(&j, 1);
    const double right = slope(place, kStep), left = slope(place, -kStep);
    if (!agree(right, left) || !agree(right, slope(place, 2 * kStep))) return;
    total += (right + left) / 2;
  }
  // The slope of all together is the sum of their slopes: not where the middle one of equals is chosen.
  if (!agree(slope(zeros, kStep), total) || !agree(slope(zeros, -kStep), total)) return;
  for (const size_t& j : zeros) {
    const std::span<const size_t> place(&j, 1);
    const double want = (slope(place, kStep) + slope(place, -kStep)) / 2;
    ASSERT_LE(std::abs(found.values[j] - want), 1e-4 * (1 + std::abs(want)))
        << what << " of input " << i << " at element " << j << ", a zero, is " << found.values[j]
        << " and should be " << want;
  }
}

void compare_at_zeros(const OpCase& op_case, const std::vector<Tensor>& got, const char* what,
                      const std::function<double(const std::vector<Array>&)>& f) {
  const std::vector<Array> values = values_with_zeros(op_case);
  size_t next = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (op_case.inputs[i].kind != CaseInput::real) continue;
    const size_t at = next++;
    if (holds_zero(op_case.inputs[i]))
      compare_at_zeros(str(op_case.name, ": the ", what), values, i,
                       got.empty() ? Array(values[i].shape) : to_array(got[at]), f);
  }
}

// ---- large integers

/// Adds `base` to the real inputs of a 64-bit integer type, modulo 2^64.
std::vector<Tensor> raised(const OpCase& op_case, DType dtype, uint64_t base, Device device) {
  const std::vector<Array> values = case_values(op_case, dtype);
  std::vector<Tensor> in = case_tensors(op_case, dtype, 0, false, device);
  for (size_t i = 0; i < in.size(); ++i) {
    if (op_case.inputs[i].kind != CaseInput::real) continue;
    std::vector<uint64_t> words;
    for (const double v : values[i].values)
      words.push_back(static_cast<uint64_t>(static_cast<int64_t>(v)) + base);
    std::vector<std::byte> bytes(words.size() * sizeof(uint64_t));
    if (!bytes.empty()) std::memcpy(bytes.data(), words.data(), bytes.size());
    in[i] = from_host(bytes.data(), values[i].shape, dtype, device);
  }
  return in;
}

Array reference_at(const OpCase& op_case, DType dtype, double base) {
  std::vector<Array> values = case_values(op_case, dtype);
  for (size_t i = 0; i < values.size(); ++i)
    if (op_case.inputs[i].kind == CaseInput::real)
      for (double& v : values[i].values) v += base;
  return reference_of(op_case, values);
}

/// The result of the call, or an undefined tensor where it refuses such numbers.
Tensor unless_refused(const std::function<Tensor()>& call) {
  try {
    return call();
  } catch (const Error&) {
    return {};
  }
}

/// Element i of a result of integers or bool, as 64 bits.
std::vector<uint64_t> words_of(const Tensor& t) {
  const std::vector<std::byte> bytes = host_bytes(t);
  const size_t width = bytes_of(t.dtype());
  std::vector<uint64_t> words(width ? bytes.size() / width : 0, 0);
  for (size_t i = 0; i < words.size(); ++i) std::memcpy(&words[i], bytes.data() + i * width, width);
  return words;
}

}  // namespace

void check_zeros(const OpCase& op_case) {
  if (std::none_of(op_case.inputs.begin(), op_case.inputs.end(), holds_zero)) return;
  int64_t size = 0;
  for (const CaseInput& input : op_case.inputs) size += size_of(input.shape);
  if (size > 4096) return;  // the rules of a large case are those of a small one
  const std::vector<Tensor> in = leaves_of(op_case, values_with_zeros(op_case)),
                            wanted = real_ones(op_case, in);
  try {
    const Tensor objective = weighed(run_case(op_case, in));
    if (!std::isfinite(objective.item<double>()) || !objective.requires_grad()) return;
    const std::vector<Tensor> first = grad(objective, wanted, {}, {}, true);
    const bool has_no_slope = op_case.name.rfind("qr", 0) == 0;  // of a matrix that lacks rank
    for (const Tensor& g : first)
      for (const double v : to_array(g).values)
        ASSERT_TRUE(!std::isnan(v) || has_no_slope)
            << op_case.name << ": a gradient at zeros is NaN where the result is finite";
    compare_at_zeros(op_case, first, "gradient", [&](const std::vector<Array>& at) {
      const NoGrad off;
      return weighed(run_case(op_case, leaves_of(op_case, at))).item<double>();
    });
    if (!op_case.second_order || op_case.refuses_second_order) return;
    const Tensor projection = weighed_gradient(op_case, in, true);
    std::vector<Tensor> second;
    if (projection.requires_grad()) second = grad(projection, wanted, {}, {}, true);
    compare_at_zeros(op_case, second, "second derivative", [&](const std::vector<Array>& at) {
      return weighed_gradient(op_case, leaves_of(op_case, at), false).item<double>();
    });
  } catch (const Error&) {  // refused: a singular matrix
  }
}

void check_large_integers(const OpCase& op_case, Device device) {
  // The reference computes in double, and says at small numbers what large ones do: where the result grows by the same
  // multiple of whatever is added to the inputs, it does so for any number with the same last bits, modulo 2^64.
  struct Base {
    uint64_t added;
    double small, larger;  // with the last bits of `added`
  };
  constexpr uint64_t kTop = uint64_t{1} << 63;
  for (const DType dtype : {DType::i64, DType::u64}) {
    if (std::find(op_case.dtypes.begin(), op_case.dtypes.end(), dtype) == op_case.dtypes.end()) continue;
    std::vector<Base> bases = {{uint64_t{1} << 53, 0x1p20, 0x1p21}};
    if (dtype == DType::u64) {
      bases.push_back({kTop + (uint64_t{1} << 53), 0x1p20, 0x1p21});
      bases.push_back({kTop - 2, 0x1p20 - 2, 0x1p21 - 2});  // on both sides of what i64 takes for negative
    }
    const Array low = reference_at(op_case, dtype, 0);
    for (const Base& base : bases) {
      SCOPED_TRACE(::testing::Message()
                   << op_case.name << " in " << dtype << " from " << base.added << " on");
      const Array middle = reference_at(op_case, dtype, base.small),
                  high = reference_at(op_case, dtype, base.larger);
      if (low.shape != middle.shape || low.shape != high.shape) continue;
      const std::vector<Tensor> in = raised(op_case, dtype, base.added, device);
      const Tensor got = unless_refused([&] { return run_case(op_case, in); });
      if (!got.defined() ||
          (got.dtype() != DType::i64 && got.dtype() != DType::u64 && got.dtype() != DType::boolean))
        continue;
      ASSERT_EQ(got.shape(), low.shape);
      const std::vector<uint64_t> words = words_of(got);
      for (int64_t i = 0; i < low.size(); ++i) {
        const double times = (middle[i] - low[i]) / base.small;
        if (times != (high[i] - low[i]) / base.larger || !std::isfinite(times) || times != std::trunc(times))
          continue;
        if (!(std::abs(low[i]) < 0x1p53) || (got.dtype() == DType::boolean && times != 0)) continue;
        const uint64_t want = static_cast<uint64_t>(static_cast<int64_t>(low[i])) +
                              static_cast<uint64_t>(static_cast<int64_t>(times)) * base.added;
        ASSERT_EQ(words[static_cast<size_t>(i)], want) << "element " << i;
      }
      if (!device.is_cpu() || op_case.data_dependent) continue;
      Compiled compiled =
          compile([&](const std::vector<Tensor>& x) { return std::vector<Tensor>{op_case.call(x)}; });
      manual_seed(11);
      EXPECT_TRUE(same_bits(compiled(in)[0], got)) << "compiled";
    }
  }
}

}  // namespace tandem::testing
