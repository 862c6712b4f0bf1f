// The loss of connectionist temporal classification and its gradient: a block of threads takes a sample, step by step; a thread takes
// places of its labels.
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/core/op.h"
#include "tandem/ops/ctc_steps.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 128;

template <class C>
struct Problem {
  const C* x;
  const int64_t *targets, *input_lengths, *target_lengths;
  int64_t steps, samples, classes, labels, blank;

  Problem(const KernelArgs& args, int first)
      : x(args.in[first].as<C>()),
        targets(args.in[first + 1].as<int64_t>()),
        input_lengths(args.in[first + 2].as<int64_t>()),
        target_lengths(args.in[first + 3].as<int64_t>()),
        steps(args.in[first].shape[0]),
        samples(args.in[first].shape[1]),
        classes(args.in[first].shape[2]),
        labels(args.in[first + 1].shape[1]),
        blank(args.attributes<CtcAttrs>().blank) {}
  __device__ CtcSample sample(int64_t n) const {
    return {targets + n * labels, target_lengths[n], input_lengths[n], blank};
  }
  __device__ bool is_valid(const CtcSample& s) const { return s.is_valid(classes, steps, labels); }
  __device__ const C* row(int64_t t, int64_t n) const { return x + (t * samples + n) * classes; }
  __host__ __device__ int64_t wide() const { return 2 * labels + 1; }
};

template <class C>
__global__ void __launch_bounds__(kThreads) losses_kernel(const Problem<C> p, C* losses, C* arrivals) {
  const int64_t n = blockIdx.x, wide = p.wide();
  const CtcSample s = p.sample(n);
  const bool valid = p.is_valid(s);
  C* const all = arrivals + n * p.steps * wide;
  for (int64_t t = 0; t < p.steps; ++t) {
    for (int64_t k = threadIdx.x; k < wide; k += kThreads)
      all[t * wide + k] = valid && t < s.steps && k < s.places()
                              ? ctc_arrive(s, t, k, t > 0 ? all + (t - 1) * wide : nullptr, p.row(t, n))
                              : static_cast<C>(kCtcNever);
    __syncthreads();
  }
  if (threadIdx.x == 0)
    losses[n] = valid
                    ? ctc_total(s, s.steps > 0 ? all + (s.steps - 1) * wide : static_cast<const C*>(nullptr))
                    : static_cast<C>(NAN);
}

/// scratch: three rows of places for each sample: what follows, at this step and at the next; and shares of the gradient.
template <class C>
__global__ void __launch_bounds__(kThreads)
    gradients_kernel(const Problem<C> p, const C* grads, const C* losses, const C* arrivals, C* scratch,
                     C* out) {
  const int64_t n = blockIdx.x, wide = p.wide();
  const CtcSample s = p.sample(n);
  const C g = grads[n], loss = losses[n];
  const bool sound = p.is_valid(s) && loss - loss == C(0);
  const C fill = g == C(0) || sound ? C(0) : loss - loss;
  for (int64_t t = 0; t < p.steps; ++t)
    for (int64_t c = threadIdx.x; c < p.classes; c += kThreads)
      out[(t * p.samples + n) * p.classes + c] = fill;
  if (g == C(0) || !sound) return;
  C *now = scratch + n * 3 * wide, *after = now + wide, *const shares = after + wide;
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    const C* const next = t + 1 < s.steps ? p.row(t + 1, n) : nullptr;
    for (int64_t k = threadIdx.x; k < s.places(); k += kThreads) {
      now[k] = ctc_leave(s, k, static_cast<const C*>(after), next);
      shares[k] = g * exp_(arrivals[(n * p.steps + t) * wide + k] + now[k] + loss);
    }
    __syncthreads();
    // The first place of each label adds up all that have it, in order.
    for (int64_t k = threadIdx.x; k < s.places(); k += kThreads) {
      const int64_t label = s.label(k);
      bool is_first = true;
      for (int64_t j = 0; j < k && is_first; ++j) is_first = s.label(j) != label;
      if (!is_first) continue;
      C sum = 0;
      for (int64_t j = k; j < s.places(); ++j)
        if (s.label(j) == label) sum -= shares[j];
      out[(t * p.samples + n) * p.classes + label] = sum;
    }
    C* const kept = now;
    now = after;
    after = kept;
    __syncthreads();
  }
}

template <class C>
void run_losses(const KernelArgs& args) {
  const Problem<C> p(args, 0);
  if (p.samples == 0) return;
  losses_kernel<C><<<static_cast<unsigned>(p.samples), kThreads, 0, stream_of(args)>>>(p, args.out[0].as<C>(),
                                                                                       args.out[1].as<C>());
  launched("ctc losses_kernel");
}

template <class C>
void run_gradients(const KernelArgs& args) {
  const Problem<C> p(args, 1);
  if (p.samples == 0 || p.steps == 0) return;
  C* const scratch =
      static_cast<C*>(args.workspace(static_cast<size_t>(p.samples * 3 * p.wide()) * sizeof(C)));
  gradients_kernel<C><<<static_cast<unsigned>(p.samples), kThreads, 0, stream_of(args)>>>(
      p, args.in[0].as<C>(), args.in[5].as<C>(), args.in[6].as<C>(), scratch, args.out[0].as<C>());
  launched("ctc gradients_kernel");
}

}  // namespace

void register_ctc_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_ctc().kernels[kCuda] = [](const KernelArgs& args) {
    args.in[0].dtype == DType::f64 ? run_losses<double>(args) : run_losses<float>(args);
  };
  op_ctc_gradient().kernels[kCuda] = [](const KernelArgs& args) {
    args.in[0].dtype == DType::f64 ? run_gradients<double>(args) : run_gradients<float>(args);
  };
}

}  // namespace tandem::cuda
