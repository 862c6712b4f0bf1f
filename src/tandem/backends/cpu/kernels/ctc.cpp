// The loss of connectionist temporal classification and its gradient: each sample by itself, step by step, in logarithms.
// levels: one
#include "tandem/ops/ctc_steps.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/dtype.h"
#include "tandem/core/kernel.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {

namespace {

/// in: log_probabilities, targets and both lengths.
template <class C>
struct Problem {
  const Buffer& x;
  const Buffer* in;
  int64_t steps, samples, classes, labels;
  int64_t blank;

  Problem(const KernelArgs& args, int first)
      : x(args.in[first]),
        in(args.in + first),
        steps(x.shape[0]),
        samples(x.shape[1]),
        classes(x.shape[2]),
        labels(in[1].shape[1]),
        blank(args.attributes<CtcAttrs>().blank) {}
  CtcSample sample(int64_t n) const {
    return {in[1].as<int64_t>() + n * labels, in[3].as<int64_t>()[n], in[2].as<int64_t>()[n], blank};
  }
  bool is_valid(const CtcSample& s) const { return s.is_valid(classes, steps, labels); }
  const C* row(int64_t t, int64_t n) const { return x.as<C>() + (t * samples + n) * classes; }
};

template <class C>
void losses(const KernelArgs& args) {
  const Problem<C> p(args, 0);
  const int64_t wide = 2 * p.labels + 1;
  constexpr C kNever = static_cast<C>(kCtcNever);
  parallel_for(p.samples, [&](int64_t n) {
    C& loss = args.out[0].as<C>()[n];
    C* const all = args.out[1].as<C>() + n * p.steps * wide;
    std::fill(all, all + p.steps * wide, kNever);
    const CtcSample s = p.sample(n);
    if (!p.is_valid(s)) {
      loss = std::numeric_limits<C>::quiet_NaN();
      return;
    }
    for (int64_t t = 0; t < s.steps; ++t)
      for (int64_t k = 0; k < s.places(); ++k)
        all[t * wide + k] = ctc_arrive(s, t, k, t > 0 ? all + (t - 1) * wide : nullptr, p.row(t, n));
    loss = ctc_total(s, s.steps > 0 ? all + (s.steps - 1) * wide : nullptr);
  });
}

template <class C>
void gradients(const KernelArgs& args) {
  const Problem<C> p(args, 1);
  const int64_t wide = 2 * p.labels + 1;
  parallel_for(p.samples, [&](int64_t n) {
    const C g = args.in[0].as<C>()[n], loss = args.in[5].as<C>()[n];
    const C* const all = args.in[6].as<C>() + n * p.steps * wide;
    const auto row = [&](int64_t t) { return args.out[0].as<C>() + (t * p.samples + n) * p.classes; };
    for (int64_t t = 0; t < p.steps; ++t) std::fill(row(t), row(t) + p.classes, C(0));
    const CtcSample s = p.sample(n);
    if (g == C(0)) return;
    if (!p.is_valid(s) || !(loss - loss == C(0))) {
      for (int64_t t = 0; t < p.steps; ++t) std::fill(row(t), row(t) + p.classes, loss - loss);
      return;
    }
    std::vector<C> after(static_cast<size_t>(wide)), now(static_cast<size_t>(wide));
    for (int64_t t = s.steps - 1; t >= 0; --t) {
      const C* const next = t + 1 < s.steps ? p.row(t + 1, n) : nullptr;
      for (int64_t k = 0; k < s.places(); ++k) {
        now[static_cast<size_t>(k)] = ctc_leave(s, k, after.data(), next);
        row(t)[s.label(k)] -= g * exp_(all[t * wide + k] + now[static_cast<size_t>(k)] + loss);
      }
      std::swap(now, after);
    }
  });
}

}  // namespace

void register_ctc_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_ctc().kernels[cpu] = [](const KernelArgs& args) {
    args.in[0].dtype == DType::f64 ? losses<double>(args) : losses<float>(args);
  };
  op_ctc_gradient().kernels[cpu] = [](const KernelArgs& args) {
    args.in[0].dtype == DType::f64 ? gradients<double>(args) : gradients<float>(args);
  };
}

}  // namespace tandem::cpu::TD_ISA
