// Recurrent sequences with layer norm or a projection. A step needs whole rows of its products, so that it is two or three small
// kernels in turn: products by tiles, then one block per sample for its norms and gates, then the projection's product. A recording
// replays all of them at once.
#include <algorithm>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/recurrent.cuh"
#include "tandem/core/op.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 32;     // rows and columns of a block of a product, and terms at a time
constexpr int kTileRows = 8;  // of threads; each has kTile / kTileRows rows

/// out (rows, columns) = a (rows, depth) · w, element (k, column) of w at column · along + k · down. Terms are added in order.
template <class S, class C>
__global__ void multiply_kernel(const C* a, int64_t rows, int64_t depth, const S* w, int64_t along,
                                int64_t down, int64_t columns, C* out) {
  __shared__ C left[kTile][kTile + 1], right[kTile][kTile + 1];  // [row][term], [column][term]
  constexpr int kRows = kTile / kTileRows;
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y);
  const int64_t row = static_cast<int64_t>(blockIdx.y) * kTile,
                column = static_cast<int64_t>(blockIdx.x) * kTile;
  C sums[kRows] = {};
  for (int64_t k = 0; k < depth; k += kTile) {
    for (int r = ty; r < kTile; r += kTileRows) {
      left[r][tx] = row + r < rows && k + tx < depth ? a[(row + r) * depth + k + tx] : C(0);
      // Neighbouring threads read neighbouring elements, whichever axis they lie along.
      const int c = down == 1 ? r : tx, term = down == 1 ? tx : r;
      right[c][term] = column + c < columns && k + term < depth
                           ? static_cast<C>(w[(column + c) * along + (k + term) * down])
                           : C(0);
    }
    __syncthreads();
#pragma unroll 8
    for (int term = 0; term < kTile; ++term)
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r] = fma(left[ty + r * kTileRows][term], right[tx][term], sums[r]);
    __syncthreads();
  }
  for (int r = 0; r < kRows; ++r) {
    const int64_t to = row + ty + r * kTileRows;
    if (to < rows && column + tx < columns) out[to * columns + column + tx] = sums[r];
  }
}

template <class S, class C>
void multiply(const C* a, int64_t rows, int64_t depth, const S* w, int64_t along, int64_t down,
              int64_t columns, C* out, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((columns + kTile - 1) / kTile),
                  static_cast<unsigned>((rows + kTile - 1) / kTile));
  multiply_kernel<S, C>
      <<<grid, dim3(kTile, kTileRows), 0, stream>>>(a, rows, depth, w, along, down, columns, out);
  check(cudaGetLastError(), "multiply_kernel");
}

/// The sum over the block's threads, for each of them.
template <class C>
__device__ C block_sum(C mine) {
  __shared__ C parts[kThreads / 32];
  for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(0xffffffffu, mine, step);
  __syncthreads();  // what an earlier call left here has been read
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  C sum = parts[0];
  for (int warp = 1; warp < kThreads / 32; ++warp) sum += parts[warp];
  return sum;
}

/// The row as it is normalised, in place. Returns 1 / deviation. What threads wrote of it before is seen, and what it writes.
template <class C>
__device__ C normalise(C* x, int64_t n, double eps) {
  __syncthreads();
  C sum = 0;
  for (int64_t j = threadIdx.x; j < n; j += kThreads) sum += x[j];
  const C mean = block_sum(sum) / static_cast<C>(n);
  C squares = 0;
  for (int64_t j = threadIdx.x; j < n; j += kThreads) squares += (x[j] - mean) * (x[j] - mean);
  const C root =
      static_cast<C>(1 / sqrt_(static_cast<double>(block_sum(squares)) / static_cast<double>(n) + eps));
  for (int64_t j = threadIdx.x; j < n; j += kThreads) x[j] = (x[j] - mean) * root;
  __syncthreads();
  return root;
}

/// The gradient of normalise(): g, the gradient of the normalised row, becomes that of the row itself.
template <class S, class C>
__device__ void normalise_gradient(C* g, const S* normalised, C root, int64_t n) {
  __syncthreads();
  C sum = 0, along = 0;
  for (int64_t j = threadIdx.x; j < n; j += kThreads) {
    sum += g[j];
    along += g[j] * static_cast<C>(normalised[j]);
  }
  const C mean = block_sum(sum) / static_cast<C>(n), slope = block_sum(along) / static_cast<C>(n);
  for (int64_t j = threadIdx.x; j < n; j += kThreads)
    g[j] = root * (g[j] - mean - static_cast<C>(normalised[j]) * slope);
  __syncthreads();
}

/// Buffers of C for a step: (samples, …) each.
template <class C>
struct Rows {
  C* states;       // h as it enters the product, (…, state)
  C* products;     // (…, gates · hidden)
  C* unprojected;  // (…, hidden), with a projection
  C* projected;    // (…, state); backward: what the products send to h
};

template <class S, class C>
__device__ C masked(const RecurrentCall<S>& s, int64_t n, int64_t u, C h) {
  return s.state_mask ? h * static_cast<C>(s.state_mask[n * s.state + u]) : h;
}

template <class S, class C>
__global__ void begin_kernel(const RecurrentCall<S> s, const Rows<C> rows) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e < s.samples * s.state) rows.states[e] = masked(s, e / s.state, e % s.state, static_cast<C>(s.h[e]));
}

/// The last thing of a step: one element of h.
template <class S, class C>
__device__ void give_h(const RecurrentCall<S>& s, const Rows<C>& rows, int64_t i, int64_t n, int64_t u, C h,
                       bool is_beyond) {
  const int64_t e = n * s.state + u, place = s.at(i) * s.samples * s.state + e;
  const C before = static_cast<C>(i == 0 ? s.h[e] : s.output[s.at(i - 1) * s.samples * s.state + e]);
  const S now = static_cast<S>(is_beyond ? before : zoned_out(h, before, s.keeps_h, place, s.keep_h));
  s.output[place] = now;
  rows.states[e] = masked(s, n, u, static_cast<C>(now));
  if (i + 1 == s.steps) s.last_h[e] = now;
}

/// A block is a sample.
template <class S, class C>
__global__ void __launch_bounds__(kThreads)
    gates_kernel(const RecurrentCall<S> s, const Rows<C> rows, int64_t i) {
  const int64_t n = blockIdx.x, t = s.at(i), all = s.gates * s.hidden, row = t * s.samples + n;
  const bool lstm = s.kind == Recurrence::lstm;
  C* const q = rows.products + n * all;
  S* const kept = s.saved + row * s.saved_columns.columns;
  if (s.is_beyond(i, n)) {  // the same for the whole block
    for (int64_t u = threadIdx.x; u < s.saved_columns.columns; u += kThreads) kept[u] = static_cast<S>(C(0));
    for (int64_t u = threadIdx.x; u < s.hidden; u += kThreads) {
      if (lstm) s.cells[row * s.hidden + u] = s.before(s.c, s.cells, i, n)[u];
      if (lstm && i + 1 == s.steps) s.last_c[n * s.hidden + u] = s.cells[row * s.hidden + u];
      if (s.projection) rows.unprojected[n * s.hidden + u] = C(0);
    }
    if (!s.projection)
      for (int64_t u = threadIdx.x; u < s.state; u += kThreads) give_h(s, rows, i, n, u, C(0), true);
    return;
  }
  if (s.norm) {
    const C root = normalise(q, all, s.eps);
    if (threadIdx.x == 0) kept[s.saved_columns.norm_root] = static_cast<S>(root);
    for (int64_t j = threadIdx.x; j < all; j += kThreads) {
      kept[s.saved_columns.norm + j] = static_cast<S>(q[j]);
      q[j] *= static_cast<C>(s.norm[j]);
    }
    __syncthreads();
  }
  const S* const x = s.x + row * all;
  for (int64_t u = threadIdx.x; u < s.hidden; u += kThreads) {
    const auto given = [&](int g) { return static_cast<C>(x[g * s.hidden + u]); };
    const auto product = [&](int g) { return q[g * s.hidden + u]; };
    C keep[4] = {}, h;
    if (lstm) {
      const int64_t place = row * s.hidden + u;
      const C c_before = static_cast<C>(s.before(s.c, s.cells, i, n)[u]);
      const LstmForward<C> now =
          lstm_forward<C>(given(0) + product(0), given(1) + product(1), given(2) + product(2),
                          given(3) + product(3), c_before, s.candidate_share(place));
      keep[0] = now.i, keep[1] = now.f, keep[2] = now.g, keep[3] = now.o;
      s.cells[place] = static_cast<S>(zoned_out(now.c, c_before, s.keeps_c, place, s.keep_c));
      if (i + 1 == s.steps) s.last_c[n * s.hidden + u] = s.cells[place];
      h = s.norm_c ? now.c : now.h;
    } else if (s.kind == Recurrence::gru) {
      const auto with_bias = [&](int g) {
        return s.bias ? product(g) + static_cast<C>(s.bias[g * s.hidden + u]) : product(g);
      };
      keep[3] = with_bias(2);
      const GruForward<C> now = gru_forward<C>(given(0), given(1), given(2), with_bias(0), with_bias(1),
                                               keep[3], static_cast<C>(s.before(s.h, s.output, i, n)[u]));
      keep[0] = now.r, keep[1] = now.z, keep[2] = now.n;
      h = now.h;
    } else {
      h = keep[0] = rnn_forward(s.kind == Recurrence::rnn_tanh, given(0) + product(0));
    }
    for (int g = 0; g < s.kept; ++g) kept[g * s.hidden + u] = static_cast<S>(keep[g]);
    q[u] = h;  // of this unit, whose products have been used
    if (s.norm_c) q[s.hidden + u] = keep[3];
  }
  if (s.norm_c) {
    const C root = normalise(q, s.hidden, s.eps);
    if (threadIdx.x == 0) kept[s.saved_columns.norm_c_root] = static_cast<S>(root);
  }
  for (int64_t u = threadIdx.x; u < s.hidden; u += kThreads) {
    C h = q[u];
    if (s.norm_c) {
      kept[s.saved_columns.norm_c + u] = static_cast<S>(h);
      h = q[s.hidden + u] * tanh_(h * static_cast<C>(s.norm_c[u]) + static_cast<C>(s.norm_c_bias[u]));
    }
    if (s.projection) {
      kept[s.saved_columns.unprojected + u] = static_cast<S>(h);
      rows.unprojected[n * s.hidden + u] = h;
    } else {
      give_h(s, rows, i, n, u, h, false);
    }
  }
}

template <class S, class C>
__global__ void give_kernel(const RecurrentCall<S> s, const Rows<C> rows, int64_t i) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e < s.samples * s.state)
    give_h(s, rows, i, e / s.state, e % s.state, rows.projected[e], s.is_beyond(i, e / s.state));
}

/// What reaches h at step i, one element: from the step after, by its products where there was one, and from the output. The part
/// that goes on to the step before stays in to_h. i is -1 at the end.
template <class S, class C>
__global__ void enter_kernel(const RecurrentCall<S> s, const Rows<C> rows, int64_t i) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const bool is_first = i + 1 == s.steps;
  if (e < s.samples * s.hidden && s.to_c) {
    if (is_first) s.to_c[e] = s.grad_c ? static_cast<C>(s.grad_c[e]) : C(0);
    if (i < 0) s.grad_first_c[e] = static_cast<S>(s.to_c[e]);
  }
  if (e >= s.samples * s.state) return;
  const int64_t n = e / s.state, u = e % s.state;
  C h = is_first ? s.grad_h ? static_cast<C>(s.grad_h[e]) : C(0)
                 : s.to_h[e] + masked(s, n, u, rows.projected[e]);
  if (i < 0) {
    s.grad_first_h[e] = static_cast<S>(h);
    return;
  }
  const int64_t place = s.at(i) * s.samples * s.state + e;
  if (s.grad_output) h += static_cast<C>(s.grad_output[place]);
  if (s.is_beyond(i, n)) {
    s.to_h[e] = h;
    h = C(0);
  } else {
    s.to_h[e] = take_old(h, s.keeps_h, place, s.keep_h);
  }
  if (s.grad_projected) s.grad_projected[place] = static_cast<S>(h);
  rows.states[e] = h;
}

/// A block is a sample. of_h (samples, hidden): gradients of h before a projection.
template <class S, class C>
__global__ void __launch_bounds__(kThreads)
    gates_gradient_kernel(const RecurrentCall<S> s, const Rows<C> rows, const C* of_h, int64_t i) {
  const int64_t n = blockIdx.x, t = s.at(i), all = s.gates * s.hidden, row = t * s.samples + n;
  const bool lstm = s.kind == Recurrence::lstm, gru = s.kind == Recurrence::gru;
  C* const d = rows.products + n * all;
  const C* const of = of_h + n * s.hidden;
  if (s.is_beyond(i, n)) {  // the same for the whole block
    for (int64_t j = threadIdx.x; j < all; j += kThreads) {
      d[j] = C(0);
      for (S* to : {s.grad_x, s.grad_beside, s.grad_products}) to[row * all + j] = static_cast<S>(C(0));
    }
    if (s.grad_norm_c)
      for (int64_t u = threadIdx.x; u < s.hidden; u += kThreads)
        s.grad_norm_c[row * s.hidden + u] = static_cast<S>(C(0));
    return;
  }
  const S* const kept = s.saved + row * s.saved_columns.columns;
  const auto gate = [&](int g, int64_t u) { return static_cast<C>(kept[g * s.hidden + u]); };
  if (s.norm_c) {  // d: of the gate o, then of c by way of its norm
    const S* const normalised = kept + s.saved_columns.norm_c;
    for (int64_t u = threadIdx.x; u < s.hidden; u += kThreads) {
      const C factor = static_cast<C>(s.norm_c[u]);
      const C bent = tanh_(static_cast<C>(normalised[u]) * factor + static_cast<C>(s.norm_c_bias[u]));
      const C of_bent = of[u] * gate(3, u) * (C(1) - bent * bent);
      s.grad_norm_c[row * s.hidden + u] = static_cast<S>(of_bent);
      d[u] = of[u] * bent;
      d[s.hidden + u] = of_bent * factor;
    }
    normalise_gradient(d + s.hidden, normalised, static_cast<C>(kept[s.saved_columns.norm_c_root]), s.hidden);
  }
  for (int64_t u = threadIdx.x; u < s.hidden; u += kThreads) {
    const int64_t place = row * s.hidden + u, state = n * s.hidden + u;
    C of_x[4] = {};
    if (lstm) {
      const C c_before = static_cast<C>(s.before(s.c, s.cells, i, n)[u]), share = s.candidate_share(place);
      C c = s.to_c[state];
      const C old_c = take_old(c, s.keeps_c, place, s.keep_c);
      const LstmBackward<C> back =
          s.norm_c
              ? lstm_gates_backward<C>(gate(0, u), gate(1, u), gate(2, u), gate(3, u), c_before, share, d[u],
                                       c + d[s.hidden + u])
              : lstm_backward<C>(gate(0, u), gate(1, u), gate(2, u), gate(3, u), c_before, share, of[u], c);
      of_x[0] = back.i, of_x[1] = back.f, of_x[2] = back.g, of_x[3] = back.o;
      s.to_c[state] = old_c + back.c;
    } else if (gru) {
      const GruBackward<C> back = gru_backward<C>(gate(0, u), gate(1, u), gate(2, u), gate(3, u),
                                                  static_cast<C>(s.before(s.h, s.output, i, n)[u]), of[u]);
      of_x[0] = back.r, of_x[1] = back.z, of_x[2] = back.n, of_x[3] = back.q_n;
      s.to_h[state] += back.h;
    } else {
      of_x[0] = rnn_backward(s.kind == Recurrence::rnn_tanh, gate(0, u), of[u]);
    }
    for (int g = 0; g < s.gates; ++g) {
      const int64_t to = g * s.hidden + u;
      d[to] = of_x[gru && g == 2 ? 3 : g];
      s.grad_x[row * all + to] = static_cast<S>(of_x[g]);
      if (gru) s.grad_beside[row * all + to] = static_cast<S>(d[to]);
    }
  }
  if (!s.norm) return;
  __syncthreads();
  for (int64_t j = threadIdx.x; j < all; j += kThreads) d[j] *= static_cast<C>(s.norm[j]);
  normalise_gradient(d, kept + s.saved_columns.norm, static_cast<C>(kept[s.saved_columns.norm_root]), all);
  for (int64_t j = threadIdx.x; j < all; j += kThreads) s.grad_products[row * all + j] = static_cast<S>(d[j]);
}

unsigned blocks_of(int64_t elements) { return static_cast<unsigned>((elements + kThreads - 1) / kThreads); }

template <class S, bool backward>
void run(const KernelArgs& args) {
  using C = typename ComputeType<S>::type;
  RecurrentCall<S> s{};
  s.fill(args, backward);
  if (s.samples == 0) return;
  const int64_t all = s.gates * s.hidden, n = s.samples;
  TD_CHECK(s.hidden < (int64_t{1} << 20) && n < (int64_t{1} << 20),
           "recurrent: with layer norm or a projection a layer on a GPU has fewer than 1,048,576 units and "
           "samples; got ",
           s.hidden, " and ", n, ".");
  const int64_t states = n * s.state, cells = n * s.hidden;
  const int64_t sizes[] = {states,
                           n * all,
                           s.projection ? cells : 0,
                           states,
                           backward ? states : 0,
                           backward && s.kind == Recurrence::lstm ? cells : 0};
  C* parts[6];
  int64_t size = 0;
  for (const int64_t each : sizes) size += each;
  C* next = static_cast<C*>(args.workspace(static_cast<size_t>(size) * sizeof(C)));
  for (int i = 0; i < 6; ++i) {
    parts[i] = sizes[i] ? next : nullptr;
    next += sizes[i];
  }
  const Rows<C> rows{parts[0], parts[1], parts[2], parts[3]};
  s.to_h = parts[4], s.to_c = parts[5];
  const cudaStream_t stream = stream_of(args);
  const auto elementwise = blocks_of(std::max(states, cells));
  const auto per_sample = static_cast<unsigned>(n);
  if constexpr (!backward) {
    begin_kernel<S, C><<<blocks_of(states), kThreads, 0, stream>>>(s, rows);
    check(cudaGetLastError(), "begin_kernel");
    for (int64_t i = 0; i < s.steps; ++i) {
      multiply<S, C>(rows.states, n, s.state, s.weight, s.state, 1, all, rows.products, stream);
      gates_kernel<S, C><<<per_sample, kThreads, 0, stream>>>(s, rows, i);
      check(cudaGetLastError(), "gates_kernel");
      if (!s.projection) continue;
      multiply<S, C>(rows.unprojected, n, s.hidden, s.projection, s.hidden, 1, s.state, rows.projected,
                     stream);
      give_kernel<S, C><<<blocks_of(states), kThreads, 0, stream>>>(s, rows, i);
      check(cudaGetLastError(), "give_kernel");
    }
  } else {
    for (int64_t i = s.steps - 1; i >= -1; --i) {
      enter_kernel<S, C><<<elementwise, kThreads, 0, stream>>>(s, rows, i);
      check(cudaGetLastError(), "enter_kernel");
      if (i < 0) break;
      if (s.projection)
        multiply<S, C>(rows.states, n, s.state, s.projection, 1, s.hidden, s.hidden, rows.unprojected,
                       stream);
      gates_gradient_kernel<S, C>
          <<<per_sample, kThreads, 0, stream>>>(s, rows, s.projection ? rows.unprojected : rows.states, i);
      check(cudaGetLastError(), "gates_gradient_kernel");
      multiply<S, C>(rows.products, n, all, s.weight, 1, s.state, s.state, rows.projected, stream);
    }
  }
}

}  // namespace

void recurrent_by_rows(const KernelArgs& args) {
  visit_floating(args.in[0].dtype, [&](auto zero) { run<decltype(zero), false>(args); });
}
void recurrent_gradient_by_rows(const KernelArgs& args) {
  visit_floating(args.in[0].dtype, [&](auto zero) { run<decltype(zero), true>(args); });
}

}  // namespace tandem::cuda
