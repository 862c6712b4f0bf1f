// CPU kernels of the ops matmul and linear.
#include "tandem/ops/matmul.h"

#include "tandem/backends/cpu/backend.h"
#include "tandem/backends/cpu/gemm_bf16.h"
#include "tandem/backends/cpu/kernels/gemm.h"
#include "tandem/core/device.h"
#include "tandem/core/kernel.h"
#include "tandem/core/threads.h"

namespace tandem::cpu::TD_ISA {
namespace {

constexpr int64_t kLargeProduct =
    1 << 22;                         // multiply-adds from which one product feeds all threads by itself
constexpr int64_t kGrain = 1 << 14;  // multiply-adds of a chunk

Chooser<GemmProblem, GemmCall>& chooser() {
  static auto& all = *new Chooser<GemmProblem, GemmCall>(gemm_rows());
  return all;
}

/// Who computes a product; run(row) computes the call. One of a batch has the bits that it has alone: how many there are
/// is no part of the choice.
template <class Run>
const GemmImplementation& choose(const GemmProblem& p, const Run& run) {
  const MatmulChoice choice = matmul_choice();
  return chooser().choose(choice.mode, p, [&](const auto& list) -> const GemmImplementation& {
    return list.by_time(p,
                        str("matmul ", name(p.dtype), " ", p.m, "x", p.k, " ", p.k, "x", p.n, "; ",
                            isa_level(), " kernels, ", words_of_bf16(p.dtype), processor()),
                        choice.keep,
                        [&](const GemmImplementation& row) { return host_seconds([&] { run(row); }); });
  });
}

GemmProblem matmul_problem(const KernelArgs& args) {
  const Buffer &a = args.in[0], &b = args.in[1];
  return {a.shape[a.rank - 2], b.shape[b.rank - 1], a.shape[a.rank - 1], a.dtype};
}

/// Large products of a batch run one after the other, each on all threads; small ones side by side, one thread each.
void matmul(const KernelArgs& args) {
  const Buffer &a = args.in[0], &b = args.in[1];
  const int r = a.rank;
  const int64_t batch = r == 3 ? a.shape[0] : 1;
  const GemmCall first{matmul_problem(args),
                       {a.data, a.strides[r - 2], a.strides[r - 1]},
                       {b.data, b.strides[r - 2], b.strides[r - 1]},
                       args.out[0].data,
                       b.shape[r - 1]};
  const GemmProblem& p = first.problem;
  if (batch * p.m * p.n == 0) return;
  const auto bytes = static_cast<int64_t>(bytes_of(a.dtype));
  const int64_t a_step = r == 3 ? a.strides[0] * bytes : 0, b_step = r == 3 ? b.strides[0] * bytes : 0;
  const auto run = [&](const GemmImplementation& row) {
    if (batch == 1) return row.run(first);
    const auto items = [&](int64_t begin, int64_t end) {
      GemmCall call = first;
      for (int64_t i = begin; i < end; ++i) {
        call.a.data = static_cast<const char*>(first.a.data) + i * a_step;
        call.b.data = static_cast<const char*>(first.b.data) + i * b_step;
        call.c = static_cast<char*>(first.c) + i * p.m * p.n * bytes;
        row.run(call);
      }
    };
    if (p.m * p.n * p.k >= kLargeProduct)
      items(0, batch);
    else
      parallel_ranges(batch, 1 + kGrain / (p.m * p.n * p.k + 1), items);
  };
  run(choose(p, run));
}

GemmProblem linear_problem(const KernelArgs& args) {
  const Buffer &x = args.in[0], &weight = args.in[1];
  return {x.shape[0], weight.shape[0], x.shape[1], x.dtype};
}

void linear(const KernelArgs& args) {
  const Buffer &x = args.in[0], &weight = args.in[1];
  GemmCall call{linear_problem(args),
                {x.data, x.strides[0], x.strides[1]},
                {weight.data, weight.strides[1], weight.strides[0]},
                args.out[0].data,
                weight.shape[0]};
  const GemmProblem& p = call.problem;
  if (p.m * p.n == 0) return;
  const void* bias = args.n_in > 2 ? args.in[2].data : nullptr;
  if (bias && p.n > 1 && args.in[2].strides[0] != 1) {
    void* dense = args.workspace(static_cast<size_t>(p.n) * bytes_of(p.dtype));
    visit_dtype(p.dtype, [&](auto zero) {
      using S = decltype(zero);
      for (int64_t j = 0; j < p.n; ++j)
        static_cast<S*>(dense)[j] = static_cast<const S*>(bias)[j * args.in[2].strides[0]];
    });
    // To the kernels a bias has no stride.
    bias = dense;
  }
  call.column_bias = bias;
  const auto run = [&](const GemmImplementation& row) { row.run(call); };
  run(choose(p, run));
}

template <GemmProblem (*problem)(const KernelArgs&)>
Candidates candidates(const KernelArgs& args) {
  return chooser().report(matmul_choice().mode, problem(args));
}

}  // namespace

void register_matmul_kernels() {
  constexpr int kCpu = static_cast<int>(DeviceKind::cpu);
  chooser();  // made at start, in no fork's way
  op_matmul().kernels[kCpu] = &matmul;
  op_linear().kernels[kCpu] = &linear;
  op_matmul().candidates[kCpu] = &candidates<matmul_problem>;
  op_linear().candidates[kCpu] = &candidates<linear_problem>;
}

}  // namespace tandem::cpu::TD_ISA
