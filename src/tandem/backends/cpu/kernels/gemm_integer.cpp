// "integers": products of integers, which wrap around. k runs in order for each element.
#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kRowGrain = 1 << 14;  // multiply-adds of a chunk

template <class S>
void product(const GemmCall& call) {
  const int64_t m = call.problem.m, n = call.problem.n, k = call.problem.k;
  const Matrix<S> a = call.a.as<S>(), b = call.b.as<S>();
  const Bias<S> bias = call.bias<S>();
  parallel_ranges(m, 1 + kRowGrain / (n * k + 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      S* row = static_cast<S*>(call.c) + i * call.leading;
      for (int64_t j = 0; j < n; ++j) row[j] = bias.column ? bias.column[j] : S(0);
      for (int64_t p = 0; p < k; ++p) {
        const S x = a.data[i * a.row + p * a.column];
        const S* y = b.data + p * b.row;
        for (int64_t j = 0; j < n; ++j) row[j] = static_cast<S>(row[j] + x * y[j * b.column]);
      }
    }
  });
}

class IntegerGemm final : public GemmImplementation {
 public:
  std::string name() const override { return "integers"; }
  const char* can(const GemmProblem& p) const override {
    return is_floating(p.dtype) || p.dtype == DType::boolean ? "it takes integers only." : nullptr;
  }
  bool is_fixed() const override { return true; }
  void run(const GemmCall& call) const override {
    visit_dtype(call.problem.dtype, [&](auto zero) {
      using S = decltype(zero);
      if constexpr (std::is_integral_v<S> && !std::is_same_v<S, bool>) product<S>(call);
    });
  }
};

}  // namespace

const GemmImplementation& integer_gemm() {
  static constexpr IntegerGemm row;
  return row;
}

}  // namespace tandem::cpu::TD_ISA
