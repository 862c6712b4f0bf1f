// conv and its gradients through cuDNN, in heuristic mode without the algorithms that it calls
// nondeterministic. What was chosen for a shape is kept, so that it is the same for every call. Small
// convolutions go to kernels of our own (conv_small.cu).
#include "tandem/ops/conv.h"

#include <array>
#include <map>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/convolution.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"

namespace tandem::cuda {
namespace {

constexpr size_t kMaxWorkspace = size_t{256} << 20;

enum class Pass { forward, input_gradient, weight_gradient };

void check_dnn(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    throw Error(cat("conv: ", call, " failed: ", cudnnGetErrorString(status), "."));
}

struct ConvPlan {
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t weight = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  int algorithm = -1;  // of the pass's own enumeration; -1: none is deterministic and fits
  size_t workspace = 0;
};

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return CUDNN_DATA_DOUBLE;
    case DType::bf16:
      return CUDNN_DATA_BFLOAT16;
    case DType::f16:
      return CUDNN_DATA_HALF;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

/// The algorithms that add with atomics, whatever the heuristic says of them.
bool excluded(cudnnConvolutionFwdAlgo_t) { return false; }
bool excluded(cudnnConvolutionBwdDataAlgo_t a) { return a == CUDNN_CONVOLUTION_BWD_DATA_ALGO_0; }
bool excluded(cudnnConvolutionBwdFilterAlgo_t a) {
  return a == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 || a == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3;
}

/// Takes the first of the heuristic's proposals that is deterministic, fits and is really supported.
template <class Perf, class Ask, class Workspace>
void choose(ConvPlan& plan, const Ask& ask, const Workspace& workspace_of) {
  std::array<Perf, 16> proposals{};
  int count = 0;
  if (ask(static_cast<int>(proposals.size()), &count, proposals.data()) != CUDNN_STATUS_SUCCESS) return;
  for (int i = 0; i < count; ++i) {
    const Perf& p = proposals[static_cast<size_t>(i)];
    if (p.status != CUDNN_STATUS_SUCCESS || p.determinism != CUDNN_DETERMINISTIC || excluded(p.algo))
      continue;
    if (cudnnSetConvolutionMathType(plan.convolution, p.mathType) != CUDNN_STATUS_SUCCESS) continue;
    size_t bytes = 0;
    if (workspace_of(p.algo, &bytes) != CUDNN_STATUS_SUCCESS || bytes > kMaxWorkspace) continue;
    plan.algorithm = static_cast<int>(p.algo);
    plan.workspace = bytes;
    return;
  }
}

ConvPlan make_plan(cudnnHandle_t dnn, Pass pass, const Convolution& s) {
  ConvPlan plan;
  const cudnnDataType_t type = data_type(s.dtype);
  const auto i = [](int64_t value) { return static_cast<int>(value); };
  check_dnn(cudnnCreateTensorDescriptor(&plan.x), "cudnnCreateTensorDescriptor");
  check_dnn(cudnnCreateTensorDescriptor(&plan.y), "cudnnCreateTensorDescriptor");
  check_dnn(cudnnCreateFilterDescriptor(&plan.weight), "cudnnCreateFilterDescriptor");
  check_dnn(cudnnCreateConvolutionDescriptor(&plan.convolution), "cudnnCreateConvolutionDescriptor");
  // Two spatial axes where the depth does nothing, else three.
  const bool deep = s.in[0] != 1 || s.kernel[0] != 1 || s.out[0] != 1 || s.padding[0] != 0;
  const int axes = deep ? 3 : 2;
  using List = std::array<int, 5>;
  const auto list = [&](int64_t first, int64_t second, const Axes3& a) {
    return deep ? List{i(first), i(second), i(a[0]), i(a[1]), i(a[2])}
                : List{i(first), i(second), i(a[1]), i(a[2])};
  };
  const auto spatial = [&](const Axes3& a) {
    return deep ? std::array{i(a[0]), i(a[1]), i(a[2])} : std::array{i(a[1]), i(a[2]), 0};
  };
  const auto describe_tensor = [&](cudnnTensorDescriptor_t tensor, const List& sizes) {
    List strides{};
    for (int d = axes + 1, step = 1; d >= 0; --d) {
      strides[static_cast<size_t>(d)] = step;
      step *= sizes[static_cast<size_t>(d)];
    }
    check_dnn(cudnnSetTensorNdDescriptor(tensor, type, axes + 2, sizes.data(), strides.data()),
              "cudnnSetTensorNdDescriptor");
  };
  describe_tensor(plan.x, list(s.n, s.c, s.in));
  describe_tensor(plan.y, list(s.n, s.o, s.out));
  check_dnn(cudnnSetFilterNdDescriptor(plan.weight, type, CUDNN_TENSOR_NCHW, axes + 2,
                                       list(s.o, s.c / s.groups, s.kernel).data()),
            "cudnnSetFilterNdDescriptor");
  check_dnn(cudnnSetConvolutionNdDescriptor(plan.convolution, axes, spatial(s.padding).data(),
                                            spatial(s.stride).data(), spatial(s.dilation).data(),
                                            CUDNN_CROSS_CORRELATION,
                                            s.dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT),
            "cudnnSetConvolutionNdDescriptor");
  check_dnn(cudnnSetConvolutionGroupCount(plan.convolution, i(s.groups)), "cudnnSetConvolutionGroupCount");
  const cudnnMathType_t math = s.dtype == DType::bf16 || s.dtype == DType::f16 ? CUDNN_TENSOR_OP_MATH
                               : s.dtype == DType::f32 && !allow_tf32()        ? CUDNN_FMA_MATH
                                                                               : CUDNN_DEFAULT_MATH;
  check_dnn(cudnnSetConvolutionMathType(plan.convolution, math), "cudnnSetConvolutionMathType");
  switch (pass) {
    case Pass::forward:
      choose<cudnnConvolutionFwdAlgoPerf_t>(
          plan,
          [&](int asked, int* count, cudnnConvolutionFwdAlgoPerf_t* out) {
            return cudnnGetConvolutionForwardAlgorithm_v7(dnn, plan.x, plan.weight, plan.convolution, plan.y,
                                                          asked, count, out);
          },
          [&](cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
            return cudnnGetConvolutionForwardWorkspaceSize(dnn, plan.x, plan.weight, plan.convolution, plan.y,
                                                           algorithm, bytes);
          });
      break;
    case Pass::input_gradient:
      choose<cudnnConvolutionBwdDataAlgoPerf_t>(
          plan,
          [&](int asked, int* count, cudnnConvolutionBwdDataAlgoPerf_t* out) {
            return cudnnGetConvolutionBackwardDataAlgorithm_v7(dnn, plan.weight, plan.y, plan.convolution,
                                                               plan.x, asked, count, out);
          },
          [&](cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
            return cudnnGetConvolutionBackwardDataWorkspaceSize(dnn, plan.weight, plan.y, plan.convolution,
                                                                plan.x, algorithm, bytes);
          });
      break;
    case Pass::weight_gradient:
      choose<cudnnConvolutionBwdFilterAlgoPerf_t>(
          plan,
          [&](int asked, int* count, cudnnConvolutionBwdFilterAlgoPerf_t* out) {
            return cudnnGetConvolutionBackwardFilterAlgorithm_v7(dnn, plan.x, plan.y, plan.convolution,
                                                                 plan.weight, asked, count, out);
          },
          [&](cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
            return cudnnGetConvolutionBackwardFilterWorkspaceSize(dnn, plan.x, plan.y, plan.convolution,
                                                                  plan.weight, algorithm, bytes);
          });
      break;
  }
  return plan;
}

/// Runs one pass by cuDNN, or returns false where it has nothing deterministic. a and b are the pass's inputs
/// (x, weight; g, weight; g, x).
bool dnn_convolution(const KernelArgs& args, Pass pass, const Convolution& s, const void* a, const void* b,
                     void* out) {
  DeviceState& state = state_of(args);
  std::array<int64_t, 24> key{
      static_cast<int64_t>(pass), static_cast<int64_t>(s.dtype), s.n, s.c, s.o, s.groups};
  size_t next = 6;
  for (const Axes3& a : {s.in, s.kernel, s.out, s.stride, s.padding, s.dilation})
    for (const int64_t v : a.v) key[next++] = v;
  std::lock_guard lock(state.dnn_mutex);
  if (!state.dnn) {
    check_dnn(cudnnCreate(&state.dnn), "cudnnCreate");
    check_dnn(cudnnSetStream(state.dnn, state.stream), "cudnnSetStream");
  }
  static std::mutex mutex;
  static std::map<std::pair<int, std::array<int64_t, 24>>, ConvPlan> plans;
  const ConvPlan* plan = nullptr;
  {
    std::lock_guard table(mutex);
    auto place = plans.find({state.index, key});
    if (place == plans.end())
      place = plans.emplace(std::pair{state.index, key}, make_plan(state.dnn, pass, s)).first;
    plan = &place->second;
  }
  if (plan->algorithm < 0) return false;
  void* work = plan->workspace ? args.workspace(plan->workspace) : nullptr;
  const float one_f = 1, zero_f = 0;
  const double one_d = 1, zero_d = 0;
  const void* one = s.dtype == DType::f64 ? static_cast<const void*>(&one_d) : &one_f;
  const void* zero = s.dtype == DType::f64 ? static_cast<const void*>(&zero_d) : &zero_f;
  switch (pass) {
    case Pass::forward:
      check_dnn(cudnnConvolutionForward(state.dnn, one, plan->x, a, plan->weight, b, plan->convolution,
                                        static_cast<cudnnConvolutionFwdAlgo_t>(plan->algorithm), work,
                                        plan->workspace, zero, plan->y, out),
                "cudnnConvolutionForward");
      break;
    case Pass::input_gradient:
      check_dnn(cudnnConvolutionBackwardData(state.dnn, one, plan->weight, b, plan->y, a, plan->convolution,
                                             static_cast<cudnnConvolutionBwdDataAlgo_t>(plan->algorithm),
                                             work, plan->workspace, zero, plan->x, out),
                "cudnnConvolutionBackwardData");
      break;
    case Pass::weight_gradient:
      check_dnn(cudnnConvolutionBackwardFilter(state.dnn, one, plan->x, b, plan->y, a, plan->convolution,
                                               static_cast<cudnnConvolutionBwdFilterAlgo_t>(plan->algorithm),
                                               work, plan->workspace, zero, plan->weight, out),
                "cudnnConvolutionBackwardFilter");
      break;
  }
  return true;
}

/// Fits what cuDNN counts in int, and is a whole convolution: of a transposed one, y may be cut at its end.
bool fits_library(const Convolution& s) {
  constexpr int64_t kLimit = int64_t{1} << 31;
  for (int i = 0; i < 3; ++i)
    if (WindowAxis{s.kernel[i], s.stride[i], s.padding[i], s.dilation[i]}.outputs(s.in[i]) != s.out[i])
      return false;
  return s.x_size() < kLimit && s.y_size() < kLimit && s.weight_size() < kLimit;
}

Convolution describe(const Buffer& x, const Buffer& weight, const Buffer& y, const ConvAttrs& a) {
  const auto spatial = [](const Buffer& b) {
    Axes3 sizes{{1, 1, 1}};
    for (int i = 2; i < b.rank; ++i) sizes[i + 3 - b.rank] = b.shape[i];
    return sizes;
  };
  return {x.shape[0], x.shape[1], weight.shape[0], spatial(x), spatial(weight), spatial(y),
          a.stride,   a.padding,  a.dilation,      a.groups,   y.dtype};
}

void zero_fill(const KernelArgs& args, const Buffer& out) {
  check(cudaMemsetAsync(out.data, 0, bytes_of(out.dtype) * static_cast<size_t>(out.size()), stream_of(args)),
        "cudaMemsetAsync");
}

void forward(const KernelArgs& args) {
  const Buffer &x = args.in[0], &weight = args.in[1], &y = args.out[0];
  const void* bias = args.n_in == 3 ? args.in[2].data : nullptr;
  if (y.size() == 0) return;
  const Convolution s = describe(x, weight, y, args.attributes<ConvAttrs>());
  if (x.size() == 0 || weight.size() == 0) {
    zero_fill(args, y);
  } else {
    if (small_conv_forward(args, s, x.data, weight.data, bias, y.data)) return;
    if (!fits_library(s) || !dnn_convolution(args, Pass::forward, s, x.data, weight.data, y.data))
      direct_conv_forward(args, s, x.data, weight.data, y.data);
  }
  if (bias) add_channel_bias(args, s, bias, y.data);
}

void input_gradient(const KernelArgs& args) {
  const Buffer &g = args.in[0], &weight = args.in[1], &out = args.out[0];
  if (out.size() == 0) return;
  if (g.size() == 0 || weight.size() == 0) return zero_fill(args, out);
  const Convolution s = describe(out, weight, g, args.attributes<ConvAttrs>());
  if (small_conv_input_gradient(args, s, g.data, weight.data, out.data)) return;
  if (!fits_library(s) || !dnn_convolution(args, Pass::input_gradient, s, g.data, weight.data, out.data))
    direct_conv_input_gradient(args, s, g.data, weight.data, out.data);
}

void weight_gradient(const KernelArgs& args) {
  const Buffer &g = args.in[0], &x = args.in[1], &out = args.out[0];
  if (out.size() == 0) return;
  if (g.size() == 0 || x.size() == 0) return zero_fill(args, out);
  const Convolution s = describe(x, out, g, args.attributes<ConvAttrs>());
  if (small_conv_weight_gradient(args, s, g.data, x.data, out.data)) return;
  if (!fits_library(s) || !dnn_convolution(args, Pass::weight_gradient, s, g.data, x.data, out.data))
    direct_conv_weight_gradient(args, s, g.data, x.data, out.data);
}

}  // namespace

void register_conv_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_conv().kernels[kCuda] = &forward;
  op_conv_input_gradient().kernels[kCuda] = &input_gradient;
  op_conv_weight_gradient().kernels[kCuda] = &weight_gradient;
}

}  // namespace tandem::cuda
