// "split": sums that are long for the size of the output, as gradients of weights are, where a tile for each block leaves most of the
// device idle. cuBLASLt computes parts of the sums as a batch, and a kernel adds them in order.
#include <algorithm>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/matrix.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cuda {
namespace {

constexpr int64_t kTile = 64;     // about that of a library for small outputs
constexpr int64_t kLeast = 1024;  // terms of a sum
constexpr int64_t kLeastPart = 128;
constexpr int64_t kMostParts = 128;
constexpr int64_t kStep = 32;  // parts are multiples of it, so that each begins at an aligned address

/// Terms of a part; all of them where it does not pay to split.
int64_t part_of(const ProductProblem& p) {
  const int64_t tiles = ((p.m + kTile - 1) / kTile) * ((p.n + kTile - 1) / kTile);
  if (p.k < kLeast || p.m > 1 << 20 || p.n > 1 << 20 || tiles > p.multiprocessors / 4) return p.k;
  const int64_t bytes = p.m * p.n * (p.dtype == DType::f64 ? 8 : 4);
  const int64_t parts = std::min({2 * p.multiprocessors / tiles, p.k / kLeastPart, kMostParts,
                                  static_cast<int64_t>(kPartsWorkspace) / bytes});
  if (parts < 2) return p.k;
  return ((p.k + parts - 1) / parts + kStep - 1) / kStep * kStep;
}

/// out = the parts, added in order, then the bias.
template <class S, class C>
__global__ void __launch_bounds__(256)
    add_parts_kernel(const C* parts, int64_t count, int64_t size, int64_t columns, const S* bias,
                     int64_t bias_stride, S* out, C* wide_out) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (e >= size) return;
  C sum = parts[e];
  for (int64_t part = 1; part < count; ++part) sum += parts[part * size + e];
  if (bias) sum += static_cast<C>(bias[e % columns * bias_stride]);
  if (wide_out)
    wide_out[e] = sum;
  else
    out[e] = static_cast<S>(sum);
}

class SplitProduct final : public ProductImplementation {
 public:
  std::string name() const override { return "split"; }
  const char* can(const ProductProblem& p) const override {
    if (!is_floating(p.dtype)) return "it takes floating types only.";
    if (p.batches != 1) return "it takes one product only.";
    if (part_of(p) >= p.k)
      return "it takes only sums of 1024 terms and more that are long for the size of the output.";
    return nullptr;
  }
  size_t workspace(const ProductProblem&) const override { return kProductWorkspace; }
  void run(const ProductCall& call) const override {
    const Product& p = call.product;
    if (needs_copy(p.a) || needs_copy(p.b)) return library_product(call.args, p, call.workspace);
    char* const memory =
        static_cast<char*>(call.workspace ? call.workspace : call.args.workspace(kProductWorkspace));
    const int64_t part = part_of(call.problem), whole = p.k / part, rest = p.k - whole * part;
    visit_floating(p.dtype, [&](auto zero) {
      using S = decltype(zero);
      using C = typename ComputeType<S>::type;
      C* const parts = reinterpret_cast<C*>(memory + kLibraryWorkspace);
      const auto multiply = [&](int64_t first, int64_t count, int64_t terms) {
        Product some = p;
        some.bias = nullptr;
        some.batches = count, some.k = terms;
        some.a.columns = some.b.rows = terms;
        some.a.data = static_cast<const S*>(p.a.data) + first * part * p.a.column_stride;
        some.b.data = static_cast<const S*>(p.b.data) + first * part * p.b.row_stride;
        some.a.batch_stride = part * p.a.column_stride;
        some.b.batch_stride = part * p.b.row_stride;
        some.out = parts + first * p.m * p.n;
        some.wide_out = sizeof(S) < sizeof(C);
        library_product(call.args, some, memory);
      };
      multiply(0, whole, part);
      if (rest) multiply(whole, 1, rest);
      const int64_t size = p.m * p.n;
      add_parts_kernel<S, C><<<static_cast<unsigned>((size + 255) / 256), 256, 0, stream_of(call.args)>>>(
          parts, whole + (rest ? 1 : 0), size, p.n, static_cast<const S*>(p.bias), p.bias_stride,
          static_cast<S*>(p.out), p.wide_out ? static_cast<C*>(p.out) : nullptr);
      launched("add_parts_kernel");
    });
  }
};

}  // namespace

const ProductImplementation& split_product() {
  static constexpr SplitProduct row;
  return row;
}

}  // namespace tandem::cuda
