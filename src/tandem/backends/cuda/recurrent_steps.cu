// "by steps": the product of a step, then a kernel for its gates, in turn. Where there is layer norm or a projection a step needs
// whole rows of its products: there a block is a sample, and the projection's product follows. A recording replays all of
// them at once.
#include <algorithm>
#include <utility>
#include <vector>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/matrix.h"
#include "tandem/backends/cuda/recurrent.cuh"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

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

/// Buffers for a step: (samples, …) each. What enters a product is of the tensors' type, what it gives is not rounded.
template <class S>
struct Rows {
  using C = typename ComputeType<S>::type;
  S* masked;       // with a mask of the state, (…, state): h as it enters the product
  C* products;     // (…, gates · hidden); backward, but by rows, (…, state)
  S* unprojected;  // with a projection, (…, hidden): what enters its product
  C* projected;    // by rows, (…, state): what the projection gives; backward what the products send to h
  C* of_h;         // backward by rows, (…, state): gradients of h
  C* of_left;      // backward with a projection, (…, hidden): gradients of what enters its product
};

template <class S, class C>
__device__ C masked(const RecurrentCall<S>& s, int64_t n, int64_t u, C h) {
  return s.state_mask ? h * static_cast<C>(s.state_mask[n * s.state + u]) : h;
}
/// h as the next product takes it, where that is not as the output has it.
template <class S>
__device__ void hand_on(const RecurrentCall<S>& s, const Rows<S>& rows, int64_t n, int64_t u, S h) {
  using C = typename ComputeType<S>::type;
  if (rows.masked) rows.masked[n * s.state + u] = static_cast<S>(masked(s, n, u, static_cast<C>(h)));
}

template <class S>
__global__ void begin_kernel(const RecurrentCall<S> s, const Rows<S> rows) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e < s.samples * s.state) hand_on(s, rows, e / s.state, e % s.state, s.h[e]);
}

/// Without layer norm and projection: a thread is a unit of a sample.
template <class S>
__global__ void __launch_bounds__(kThreads)
    units_kernel(const RecurrentCall<S> s, const Rows<S> rows, int64_t i) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= s.samples * s.hidden) return;
  const int64_t n = e / s.hidden, u = e - n * s.hidden;
  step_forward(s, i, n, u, [&](int g) { return rows.products[(n * s.gates + g) * s.hidden + u]; });
  hand_on(s, rows, n, u, s.output[s.state_place(i, n) + u]);
}
template <class S>
__global__ void __launch_bounds__(kThreads)
    units_gradient_kernel(const RecurrentCall<S> s, const Rows<S> rows, int64_t i) {
  using C = typename ComputeType<S>::type;
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= s.samples * s.hidden) return;
  const bool has_product = i + 1 < s.steps;
  step_backward(s, i, e / s.hidden, e % s.hidden, has_product, has_product ? rows.products[e] : C(0));
}

/// The last thing of a step: one element of h.
template <class S, class C>
__device__ void give_h(const RecurrentCall<S>& s, const Rows<S>& rows, int64_t i, int64_t n, int64_t u, C h,
                       bool is_beyond) {
  const int64_t e = n * s.state + u, place = s.at(i) * s.samples * s.state + e;
  const C before = static_cast<C>(i == 0 ? s.h[e] : s.output[s.at(i - 1) * s.samples * s.state + e]);
  const S now = static_cast<S>(is_beyond ? before : Zone<C>(s.keeps_h, place, s.keep_h).mix(h, before));
  s.output[place] = now;
  hand_on(s, rows, n, u, now);
  if (i + 1 == s.steps) s.last_h[e] = now;
}

/// A block is a sample.
template <class S>
__global__ void __launch_bounds__(kThreads)
    gates_kernel(const RecurrentCall<S> s, const Rows<S> rows, int64_t i) {
  using C = typename ComputeType<S>::type;
  const int64_t n = blockIdx.x, t = s.at(i), all = s.gates * s.hidden, row = t * s.samples + n;
  const bool lstm = s.kind == Recurrence::lstm;
  C* const q = rows.products + n * all;
  S* const kept = s.saved + row * s.saved_columns.columns;
  if (s.is_beyond(i, n)) {  // the same for the whole block
    for (int64_t u = threadIdx.x; u < s.saved_columns.columns; u += kThreads) kept[u] = static_cast<S>(C(0));
    for (int64_t u = threadIdx.x; u < s.hidden; u += kThreads) {
      if (lstm) s.cells[row * s.hidden + u] = s.before(s.c, s.cells, i, n)[u];
      if (lstm && i + 1 == s.steps) s.last_c[n * s.hidden + u] = s.cells[row * s.hidden + u];
      if (s.projection) rows.unprojected[n * s.hidden + u] = static_cast<S>(C(0));
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
      s.cells[place] = static_cast<S>(Zone<C>(s.keeps_c, place, s.keep_c).mix(now.c, c_before));
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
      rows.unprojected[n * s.hidden + u] = static_cast<S>(h);
    } else {
      give_h(s, rows, i, n, u, h, false);
    }
  }
}

template <class S>
__global__ void give_kernel(const RecurrentCall<S> s, const Rows<S> rows, int64_t i) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e < s.samples * s.state)
    give_h(s, rows, i, e / s.state, e % s.state, rows.projected[e], s.is_beyond(i, e / s.state));
}

/// What reaches h at step i, one element: from the step after, by its products where there was one, and from the output. The part
/// that goes on to the step before stays in to_h. i is -1 at the end.
template <class S>
__global__ void enter_kernel(const RecurrentCall<S> s, const Rows<S> rows, int64_t i) {
  using C = typename ComputeType<S>::type;
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
    s.to_h[e] = Zone<C>(s.keeps_h, place, s.keep_h).take_old(h);
  }
  if (s.grad_projected) s.grad_projected[place] = static_cast<S>(h);
  rows.of_h[e] = h;
}

/// A block is a sample. of_h (samples, hidden): gradients of h before a projection.
template <class S>
__global__ void __launch_bounds__(kThreads)
    gates_gradient_kernel(const RecurrentCall<S> s, const Rows<S> rows,
                          const typename ComputeType<S>::type* of_h, int64_t i) {
  using C = typename ComputeType<S>::type;
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
      const C old_c = Zone<C>(s.keeps_c, place, s.keep_c).take_old(c);
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

/// Memory for the parts of Rows, one after the other.
class Room {
 public:
  template <class T>
  void add(T*& part, int64_t count) {
    parts_.push_back({reinterpret_cast<void**>(&part), bytes_});
    bytes_ += (static_cast<size_t>(count) * sizeof(T) + 255) / 256 * 256;
  }
  size_t bytes() const { return bytes_; }
  void place(char* at) const {
    for (const auto& [part, offset] : parts_) *part = at + offset;
  }

 private:
  std::vector<std::pair<void**, size_t>> parts_;
  size_t bytes_ = 0;
};

/// The products of one call.
template <class S>
class Products {
 public:
  using C = typename ComputeType<S>::type;
  Products(const KernelArgs& args, int64_t rows, void* workspace)
      : args_(args), rows_(rows), workspace_(workspace) {}
  /// out (rows, columns) = left (rows, depth) · w, element (k, column) of w at column · along + k · down.
  void run(const S* left, int64_t depth, const S* w, int64_t along, int64_t down, int64_t columns,
           C* out) const {
    Product p{};
    p.a = {left, rows_, depth, depth, 1, 0};
    p.b = {w, depth, columns, down, along, 0};
    p.out = out;
    p.batches = 1, p.m = rows_, p.n = columns, p.k = depth;
    p.dtype = dtype_of<S>();
    p.wide_out = sizeof(C) > sizeof(S);
    inner_product(args_, p, workspace_);
  }

 private:
  const KernelArgs& args_;
  int64_t rows_;
  void* workspace_;
};

template <class S>
void run_forward(const KernelArgs& args) {
  RecurrentCall<S> s{};
  s.fill(args, false);
  const int64_t all = s.gates * s.hidden, n = s.samples, states = n * s.state, cells = n * s.hidden;
  const bool by_rows = args.attributes<RecurrentAttrs>().needs_rows();
  Rows<S> rows{};
  Room room;
  room.add(rows.products, n * all);
  if (s.state_mask) room.add(rows.masked, states);
  if (s.projection) room.add(rows.unprojected, cells), room.add(rows.projected, states);
  char* const memory = static_cast<char*>(args.workspace(room.bytes() + kProductWorkspace));
  room.place(memory);
  const Products<S> products(args, n, memory + room.bytes());
  const cudaStream_t stream = stream_of(args);
  if (s.state_mask) {
    begin_kernel<S><<<blocks_of(states), kThreads, 0, stream>>>(s, rows);
    launched("begin_kernel");
  }
  for (int64_t i = 0; i < s.steps; ++i) {
    const int64_t before = s.from_end ? s.steps - i : i - 1;
    const S* const state = rows.masked ? rows.masked : i == 0 ? s.h : s.output + before * states;
    products.run(state, s.state, s.weight, s.state, 1, all, rows.products);
    if (by_rows)
      gates_kernel<S><<<static_cast<unsigned>(n), kThreads, 0, stream>>>(s, rows, i);
    else
      units_kernel<S><<<blocks_of(cells), kThreads, 0, stream>>>(s, rows, i);
    launched("gates_kernel");
    if (!s.projection) continue;
    products.run(rows.unprojected, s.hidden, s.projection, s.hidden, 1, s.state, rows.projected);
    give_kernel<S><<<blocks_of(states), kThreads, 0, stream>>>(s, rows, i);
    launched("give_kernel");
  }
}

template <class S>
void run_backward(const KernelArgs& args) {
  RecurrentCall<S> s{};
  s.fill(args, true);
  const int64_t all = s.gates * s.hidden, n = s.samples, states = n * s.state, cells = n * s.hidden;
  const bool by_rows = args.attributes<RecurrentAttrs>().needs_rows();
  Rows<S> rows{};
  Room room;
  room.add(s.to_h, states);
  if (s.kind == Recurrence::lstm) room.add(s.to_c, cells);
  room.add(rows.products, by_rows ? n * all : states);
  if (by_rows) room.add(rows.projected, states), room.add(rows.of_h, states);
  if (s.projection) room.add(rows.of_left, cells);
  char* const memory = static_cast<char*>(args.workspace(room.bytes() + kProductWorkspace));
  room.place(memory);
  const Products<S> products(args, n, memory + room.bytes());
  const cudaStream_t stream = stream_of(args);
  for (int64_t i = s.steps - 1; i >= -1; --i) {
    const int64_t at = s.from_end ? s.steps - 1 - i : i;
    if (!by_rows) {
      units_gradient_kernel<S><<<blocks_of(cells), kThreads, 0, stream>>>(s, rows, i);
      launched("units_gradient_kernel");
    } else {
      enter_kernel<S><<<blocks_of(std::max(states, cells)), kThreads, 0, stream>>>(s, rows, i);
      launched("enter_kernel");
      if (i < 0) break;
      if (s.projection)
        products.run(s.grad_projected + at * states, s.state, s.projection, 1, s.hidden, s.hidden,
                     rows.of_left);
      gates_gradient_kernel<S><<<static_cast<unsigned>(n), kThreads, 0, stream>>>(
          s, rows, s.projection ? rows.of_left : rows.of_h, i);
      launched("gates_gradient_kernel");
    }
    if (i >= 0)
      products.run(s.grad_products + at * n * all, all, s.weight, 1, s.state, s.state,
                   by_rows ? rows.projected : rows.products);
  }
}

class RecurrenceBySteps final : public RecurrentImplementation {
 public:
  std::string name() const override { return "by steps"; }
  const char* can(const RecurrentProblem&) const override { return nullptr; }
  bool is_fixed() const override { return true; }
  void run(const RecurrentCallArgs& call) const override {
    const RecurrentProblem& p = call.problem;
    constexpr int64_t most = int64_t{1} << 20;
    TD_CHECK(p.hidden < most && p.samples < most,
             "recurrent: a layer on a GPU has fewer than 1,048,576 units and samples; got ", p.hidden,
             " and ", p.samples, ".");
    visit_floating(p.dtype, [&](auto zero) {
      using S = decltype(zero);
      p.backward ? run_backward<S>(call.args) : run_forward<S>(call.args);
    });
  }
};

}  // namespace

const RecurrentImplementation& recurrence_by_steps() {
  static constexpr RecurrenceBySteps row;
  return row;
}

}  // namespace tandem::cuda
