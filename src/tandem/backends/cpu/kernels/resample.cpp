// CPU kernels of resample and its adjoint. Both are one thing: a banded matrix along each axis. A row of the
// result is first a weighted sum of whole rows of the input, then each of its elements a weighted sum of a few
// of the row's.
// levels: two
// loops: short
#include "tandem/ops/resample.h"

#include <vector>

#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kGrain = 8192;  // elements of a chunk, about

/// The rows of a banded matrix: row i has weights[start[i]] … weights[start[i + 1] - 1], from column first[i] on.
template <class T>
struct Band {
  std::vector<int64_t> first, start;
  std::vector<T> weights;

  Band(const ResampleAxis& axis, bool transposed) {
    const int64_t rows = transposed ? axis.in : axis.out;
    start.push_back(0);
    for (int64_t i = 0; i < rows; ++i) {
      AxisRange r{};
      if (transposed)
        r = {axis.first_after(i, false), axis.first_after(i, true), 1};
      else
        r = axis.range(i);
      first.push_back(r.begin);
      for (int64_t j = r.begin; j < r.end; ++j)
        weights.push_back(static_cast<T>(transposed ? axis.weight(j, i) : axis.weight(i, j)));
      start.push_back(static_cast<int64_t>(weights.size()));
    }
  }
  int64_t rows() const { return static_cast<int64_t>(first.size()); }
  int64_t count(int64_t i) const { return start[static_cast<size_t>(i) + 1] - start[static_cast<size_t>(i)]; }
  const T* row(int64_t i) const { return weights.data() + start[static_cast<size_t>(i)]; }
  int64_t from(int64_t i) const { return first[static_cast<size_t>(i)]; }
};

/// sums (+)= weight * row.
template <class T, class S>
void add_row(T* sums, const S* row, T weight, int64_t n, bool add) {
  if (add)
    for (int64_t i = 0; i < n; ++i) sums[i] += weight * static_cast<T>(row[i]);
  else
    for (int64_t i = 0; i < n; ++i) sums[i] = weight * static_cast<T>(row[i]);
}

template <bool transposed>
void resample(const KernelArgs& args) {
  const Buffer &x = args.in[0], &y = args.out[0];
  if (y.size() == 0) return;
  const auto& attrs = args.attributes<ResampleAttrs>();
  const auto size = [](const Buffer& b, int axis) {
    const int at = b.rank - 3 + axis;
    return at < 2 ? int64_t{1} : b.shape[at];
  };
  const auto axis = [&](int i) {
    return transposed ? attrs.axis(i, size(y, i), size(x, i)) : attrs.axis(i, size(x, i), size(y, i));
  };
  const int64_t in_rows = size(x, 1), in_width = size(x, 2), in_volume = size(x, 0) * in_rows * in_width;
  visit_floating(x.dtype, [&](auto zero) {
    using S = decltype(zero);
    using T = Accumulator<S>;
    const Band<T> depth(axis(0), transposed), down(axis(1), transposed), across(axis(2), transposed);
    const int64_t rows = depth.rows() * down.rows(), width = across.rows();
    const int64_t row_work =
        in_width * (1 + static_cast<int64_t>(depth.weights.size() * down.weights.size()) / rows);
    parallel_ranges(
        x.shape[0] * x.shape[1] * rows, 1 + kGrain / (row_work + width), [&](int64_t begin, int64_t end) {
          // A task owns rows of the result. r counts (image, depth, row) of the result.
          T* sums = scratch_of<T>(ScratchSlot::conv_tile, in_width);
          for (int64_t r = begin; r < end; ++r) {
            const int64_t d = r % rows / down.rows(), h = r % down.rows();
            const S* from = x.as<const S>() + r / rows * in_volume;
            bool add = false;
            for (int64_t a = 0; a < depth.count(d); ++a)
              for (int64_t b = 0; b < down.count(h); ++b, add = true)
                add_row(sums, from + ((depth.from(d) + a) * in_rows + down.from(h) + b) * in_width,
                        depth.row(d)[a] * down.row(h)[b], in_width, add);
            S* to = y.as<S>() + r * width;
            for (int64_t w = 0; w < width; ++w) {
              T sum = 0;
              if (add) {  // else no window reaches this row
                const T* weights = across.row(w);
                const T* source = sums + across.from(w);
                const int64_t n = across.count(w);
                for (int64_t k = 0; k < n; ++k) sum += weights[k] * source[k];
              }
              to[w] = static_cast<S>(sum);
            }
          }
        });
  });
}

}  // namespace

void register_resample_kernels() {
  constexpr int kCpu = static_cast<int>(DeviceKind::cpu);
  op_resample().kernels[kCpu] = &resample<false>;
  op_resample_adjoint().kernels[kCpu] = &resample<true>;
}

}  // namespace tandem::cpu::TD_ISA
