// CPU kernels of the ops matmul and linear.
#include "tandem/ops/matmul.h"

#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/kernel.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kLargeProduct =
    1 << 22;                            // multiply-adds from which one product feeds all threads by itself
constexpr int64_t kRowGrain = 1 << 14;  // multiply-adds of an integer chunk

template <class T>
inline constexpr bool kIsFloating = std::is_same_v<T, float> || std::is_same_v<T, double> ||
                                    std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

/// Integers wrap around; booleans are "any of (a and b)". k runs in order for each element.
template <class S>
void integer_product(int64_t m, int64_t n, int64_t k, Matrix<S> a, Matrix<S> b, S* c, const S* bias) {
  const int64_t grain = 1 + kRowGrain / (n * k + 1);
  parallel_ranges(m, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      S* row = c + i * n;
      for (int64_t j = 0; j < n; ++j) row[j] = bias ? bias[j] : S(0);
      for (int64_t p = 0; p < k; ++p) {
        const S x = a.data[i * a.row + p * a.column];
        const S* y = b.data + p * b.row;
        for (int64_t j = 0; j < n; ++j) {
          if constexpr (std::is_same_v<S, bool>)
            row[j] = row[j] || (x && y[j * b.column]);
          else
            row[j] = static_cast<S>(row[j] + x * y[j * b.column]);
        }
      }
    }
  });
}

template <class S>
void product(int64_t m, int64_t n, int64_t k, Matrix<S> a, Matrix<S> b, S* c, const S* bias) {
  if constexpr (kIsFloating<S>)
    gemm<S>(m, n, k, a, b, c, n, Bias<S>{nullptr, bias});
  else
    integer_product<S>(m, n, k, a, b, c, bias);
}

void matmul(const KernelArgs& args) {
  const Buffer &a = args.in[0], &b = args.in[1];
  const int r = a.rank;
  const int64_t batch = r == 3 ? a.shape[0] : 1;
  const int64_t m = a.shape[r - 2], k = a.shape[r - 1], n = b.shape[r - 1];
  if (batch * m * n == 0) return;
  const int64_t a_batch = r == 3 ? a.strides[0] : 0, b_batch = r == 3 ? b.strides[0] : 0;
  visit_dtype(a.dtype, [&](auto zero) {
    using S = decltype(zero);
    const auto one = [&](int64_t i) {
      product<S>(m, n, k, {a.as<const S>() + i * a_batch, a.strides[r - 2], a.strides[r - 1]},
                 {b.as<const S>() + i * b_batch, b.strides[r - 2], b.strides[r - 1]},
                 args.out[0].as<S>() + i * m * n, nullptr);
    };
    if (m * n * k >= kLargeProduct)
      for (int64_t i = 0; i < batch; ++i) one(i);
    else
      parallel_ranges(batch, 1 + kRowGrain / (m * n * k + 1), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) one(i);
      });
  });
}

void linear(const KernelArgs& args) {
  const Buffer &x = args.in[0], &weight = args.in[1];
  const int64_t m = x.shape[0], k = x.shape[1], n = weight.shape[0];
  visit_dtype(x.dtype, [&](auto zero) {
    using S = decltype(zero);
    const S* bias = args.n_in > 2 ? args.in[2].as<const S>() : nullptr;
    if (bias && n > 1 && args.in[2].strides[0] != 1) {
      S* dense = static_cast<S*>(args.workspace(static_cast<size_t>(n) * sizeof(S)));
      for (int64_t j = 0; j < n; ++j) dense[j] = bias[j * args.in[2].strides[0]];
      bias = dense;
    }
    product<S>(m, n, k, {x.as<const S>(), x.strides[0], x.strides[1]},
               {weight.as<const S>(), weight.strides[1], weight.strides[0]}, args.out[0].as<S>(), bias);
  });
}

}  // namespace

void register_matmul_kernels() {
  op_matmul().kernels[static_cast<int>(DeviceKind::cpu)] = &matmul;
  op_linear().kernels[static_cast<int>(DeviceKind::cpu)] = &linear;
}

}  // namespace tandem::cpu::TD_ISA
