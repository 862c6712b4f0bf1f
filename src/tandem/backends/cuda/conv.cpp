// conv and its gradients: cuDNN's algorithms except those that it calls nondeterministic, and for small ones kernels of
// our own (conv_small.cu). What was chosen for a shape (core/choices.h) is kept, so that it is the same for every call.
#include "tandem/ops/conv.h"

#include <array>
#include <memory>
#include <vector>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/convolution.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/core/choice_cache.h"

namespace tandem::cuda {
namespace {

enum class Pass { forward, input_gradient, weight_gradient };

void check_dnn(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    fail(status == CUDNN_STATUS_ALLOC_FAILED,
         cat("conv: ", call, " failed: ", cudnnGetErrorString(status), "."));
}

/// One way to compute a pass: by a kernel of our own, or by an algorithm of cuDNN.
struct Way {
  enum Means { small, library, direct } means = direct;
  int algorithm = 0;  // of the pass's own enumeration
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  size_t workspace = 0;
  std::string name = "direct";
};

/// What cuDNN is told of a convolution.
struct Descriptors {
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t weight = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;

  Descriptors() = default;
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() {
    if (convolution) cudnnDestroyConvolutionDescriptor(convolution);
    if (weight) cudnnDestroyFilterDescriptor(weight);
    if (y) cudnnDestroyTensorDescriptor(y);
    if (x) cudnnDestroyTensorDescriptor(x);
  }
};

struct ConvPlan {
  Descriptors described;
  Way way;
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

/// As cudnn.h names them, in its order.
const char* name(cudnnConvolutionFwdAlgo_t a) {
  static constexpr const char* kNames[] = {
      "implicit_gemm", "implicit_precomp_gemm", "gemm", "direct", "fft", "fft_tiling",
      "winograd",      "winograd_nonfused"};
  return static_cast<size_t>(a) < std::size(kNames) ? kNames[a] : "other";
}
const char* name(cudnnConvolutionBwdDataAlgo_t a) {
  static constexpr const char* kNames[] = {"algo_0",     "algo_1",   "fft",
                                           "fft_tiling", "winograd", "winograd_nonfused"};
  return static_cast<size_t>(a) < std::size(kNames) ? kNames[a] : "other";
}
const char* name(cudnnConvolutionBwdFilterAlgo_t a) {
  static constexpr const char* kNames[] = {
      "algo_0", "algo_1", "fft", "algo_3", "winograd", "winograd_nonfused", "fft_tiling"};
  return static_cast<size_t>(a) < std::size(kNames) ? kNames[a] : "other";
}
const char* name(cudnnMathType_t math) {
  return math == CUDNN_FMA_MATH         ? "fma"
         : math == CUDNN_TENSOR_OP_MATH ? "tensor cores"
         : math == CUDNN_DEFAULT_MATH   ? "default math"
                                        : "conversions";
}

/// The heuristic's proposals, best first, that are deterministic, fit the workspace and are really supported.
template <class Perf, class Ask, class Workspace>
std::vector<Way> proposals(const Descriptors& described, const Ask& ask, const Workspace& workspace_of) {
  std::vector<Way> ways;
  std::array<Perf, 16> found{};
  int count = 0;
  if (ask(static_cast<int>(found.size()), &count, found.data()) != CUDNN_STATUS_SUCCESS) return ways;
  const size_t most = convolution_choice().workspace;
  for (int i = 0; i < count; ++i) {
    const Perf& p = found[static_cast<size_t>(i)];
    if (p.status != CUDNN_STATUS_SUCCESS || p.determinism != CUDNN_DETERMINISTIC || excluded(p.algo))
      continue;
    if (cudnnSetConvolutionMathType(described.convolution, p.mathType) != CUDNN_STATUS_SUCCESS) continue;
    size_t bytes = 0;
    if (workspace_of(p.algo, &bytes) != CUDNN_STATUS_SUCCESS || bytes > most) continue;
    ways.push_back({Way::library, static_cast<int>(p.algo), p.mathType, bytes,
                    cat("cuDNN ", name(p.algo), ", ", name(p.mathType))});
  }
  return ways;
}

void describe_to_library(const Convolution& s, Descriptors& d) {
  const cudnnDataType_t type = data_type(s.dtype);
  const auto i = [](int64_t value) { return static_cast<int>(value); };
  check_dnn(cudnnCreateTensorDescriptor(&d.x), "cudnnCreateTensorDescriptor");
  check_dnn(cudnnCreateTensorDescriptor(&d.y), "cudnnCreateTensorDescriptor");
  check_dnn(cudnnCreateFilterDescriptor(&d.weight), "cudnnCreateFilterDescriptor");
  check_dnn(cudnnCreateConvolutionDescriptor(&d.convolution), "cudnnCreateConvolutionDescriptor");
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
    for (int axis = axes + 1, step = 1; axis >= 0; --axis) {
      strides[static_cast<size_t>(axis)] = step;
      step *= sizes[static_cast<size_t>(axis)];
    }
    check_dnn(cudnnSetTensorNdDescriptor(tensor, type, axes + 2, sizes.data(), strides.data()),
              "cudnnSetTensorNdDescriptor");
  };
  describe_tensor(d.x, list(s.n, s.c, s.in));
  describe_tensor(d.y, list(s.n, s.o, s.out));
  check_dnn(cudnnSetFilterNdDescriptor(d.weight, type, CUDNN_TENSOR_NCHW, axes + 2,
                                       list(s.o, s.c / s.groups, s.kernel).data()),
            "cudnnSetFilterNdDescriptor");
  check_dnn(cudnnSetConvolutionNdDescriptor(d.convolution, axes, spatial(s.padding).data(),
                                            spatial(s.stride).data(), spatial(s.dilation).data(),
                                            CUDNN_CROSS_CORRELATION,
                                            s.dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT),
            "cudnnSetConvolutionNdDescriptor");
  check_dnn(cudnnSetConvolutionGroupCount(d.convolution, i(s.groups)), "cudnnSetConvolutionGroupCount");
  const cudnnMathType_t math = s.dtype == DType::bf16 || s.dtype == DType::f16 ? CUDNN_TENSOR_OP_MATH
                               : s.dtype == DType::f32 && !allow_tf32()        ? CUDNN_FMA_MATH
                                                                               : CUDNN_DEFAULT_MATH;
  check_dnn(cudnnSetConvolutionMathType(d.convolution, math), "cudnnSetConvolutionMathType");
}

std::vector<Way> library_ways(cudnnHandle_t dnn, Pass pass, const Descriptors& d) {
  switch (pass) {
    case Pass::forward:
      return proposals<cudnnConvolutionFwdAlgoPerf_t>(
          d,
          [&](int asked, int* count, cudnnConvolutionFwdAlgoPerf_t* out) {
            return cudnnGetConvolutionForwardAlgorithm_v7(dnn, d.x, d.weight, d.convolution, d.y, asked,
                                                          count, out);
          },
          [&](cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
            return cudnnGetConvolutionForwardWorkspaceSize(dnn, d.x, d.weight, d.convolution, d.y, algorithm,
                                                           bytes);
          });
    case Pass::input_gradient:
      return proposals<cudnnConvolutionBwdDataAlgoPerf_t>(
          d,
          [&](int asked, int* count, cudnnConvolutionBwdDataAlgoPerf_t* out) {
            return cudnnGetConvolutionBackwardDataAlgorithm_v7(dnn, d.weight, d.y, d.convolution, d.x, asked,
                                                               count, out);
          },
          [&](cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
            return cudnnGetConvolutionBackwardDataWorkspaceSize(dnn, d.weight, d.y, d.convolution, d.x,
                                                                algorithm, bytes);
          });
    case Pass::weight_gradient:
      break;
  }
  return proposals<cudnnConvolutionBwdFilterAlgoPerf_t>(
      d,
      [&](int asked, int* count, cudnnConvolutionBwdFilterAlgoPerf_t* out) {
        return cudnnGetConvolutionBackwardFilterAlgorithm_v7(dnn, d.x, d.y, d.convolution, d.weight, asked,
                                                             count, out);
      },
      [&](cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
        return cudnnGetConvolutionBackwardFilterWorkspaceSize(dnn, d.x, d.y, d.convolution, d.weight,
                                                              algorithm, bytes);
      });
}

/// One pass of one call. a and b are its inputs (x, weight; g, weight; g, x).
struct Call {
  const KernelArgs& args;
  Pass pass;
  Convolution shape;
  const void *a, *b, *bias;
  void* out;
};

void run_library(const Call& call, const Descriptors& d, const Way& way) {
  DeviceState& state = state_of(call.args);
  std::lock_guard lock(state.dnn_mutex);
  if (const cudaStream_t stream = state.current_stream(); state.dnn_stream != stream) {
    check_dnn(cudnnSetStream(state.dnn, stream), "cudnnSetStream");
    state.dnn_stream = stream;
  }
  check_dnn(cudnnSetConvolutionMathType(d.convolution, way.math), "cudnnSetConvolutionMathType");
  void* work = way.workspace ? call.args.workspace(way.workspace) : nullptr;
  const float one_f = 1, zero_f = 0;
  const double one_d = 1, zero_d = 0;
  const bool is_double = call.shape.dtype == DType::f64;
  const void* one = is_double ? static_cast<const void*>(&one_d) : &one_f;
  const void* zero = is_double ? static_cast<const void*>(&zero_d) : &zero_f;
  switch (call.pass) {
    case Pass::forward:
      return check_dnn(cudnnConvolutionForward(state.dnn, one, d.x, call.a, d.weight, call.b, d.convolution,
                                               static_cast<cudnnConvolutionFwdAlgo_t>(way.algorithm), work,
                                               way.workspace, zero, d.y, call.out),
                       "cudnnConvolutionForward");
    case Pass::input_gradient:
      return check_dnn(
          cudnnConvolutionBackwardData(state.dnn, one, d.weight, call.b, d.y, call.a, d.convolution,
                                       static_cast<cudnnConvolutionBwdDataAlgo_t>(way.algorithm), work,
                                       way.workspace, zero, d.x, call.out),
          "cudnnConvolutionBackwardData");
    case Pass::weight_gradient:
      return check_dnn(
          cudnnConvolutionBackwardFilter(state.dnn, one, d.x, call.b, d.y, call.a, d.convolution,
                                         static_cast<cudnnConvolutionBwdFilterAlgo_t>(way.algorithm), work,
                                         way.workspace, zero, d.weight, call.out),
          "cudnnConvolutionBackwardFilter");
  }
}

bool run_small(const Call& c) {
  switch (c.pass) {
    case Pass::forward:
      return small_conv_forward(c.args, c.shape, c.a, c.b, c.bias, c.out);
    case Pass::input_gradient:
      return small_conv_input_gradient(c.args, c.shape, c.a, c.b, c.out);
    case Pass::weight_gradient:
      break;
  }
  return small_conv_weight_gradient(c.args, c.shape, c.a, c.b, c.out);
}

void run_direct(const Call& c) {
  switch (c.pass) {
    case Pass::forward:
      return direct_conv_forward(c.args, c.shape, c.a, c.b, c.out);
    case Pass::input_gradient:
      return direct_conv_input_gradient(c.args, c.shape, c.a, c.b, c.out);
    case Pass::weight_gradient:
      return direct_conv_weight_gradient(c.args, c.shape, c.a, c.b, c.out);
  }
}

/// False where this way cannot do it.
bool run(const Call& call, const Descriptors& described, const Way& way) {
  if (way.means == Way::small) return run_small(call);
  if (way.means == Way::library)
    run_library(call, described, way);
  else
    run_direct(call);
  if (call.bias) add_channel_bias(call.args, call.shape, call.bias, call.out);
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

/// What other calls share this one's plan: its device, pass, type and sizes.
using Key = std::array<int64_t, 25>;
Key key_of(const DeviceState& state, Pass pass, const Convolution& s) {
  Key key{state.index, static_cast<int64_t>(pass), static_cast<int64_t>(s.dtype), s.n, s.c, s.o, s.groups};
  size_t next = 7;
  for (const Axes3& axes : {s.in, s.kernel, s.out, s.stride, s.padding, s.dilation})
    for (const int64_t v : axes.v) key[next++] = v;
  return key;
}
ChoiceCache<Key, std::shared_ptr<ConvPlan>>& plans() {
  static auto& cache = *new ChoiceCache<Key, std::shared_ptr<ConvPlan>>;
  return cache;
}

/// Everything that the time of a call depends on, in words.
std::string words_of(const DeviceState& state, Pass pass, const Convolution& s) {
  const auto list = [](const Axes3& a) { return cat(a[0], "x", a[1], "x", a[2]); };
  const OpDef& op = pass == Pass::forward          ? op_conv()
                    : pass == Pass::input_gradient ? op_conv_input_gradient()
                                                   : op_conv_weight_gradient();
  return cat(op.name, " ", tandem::name(s.dtype), s.dtype == DType::f32 && allow_tf32() ? " as tf32" : "",
             " x ", s.n, "x", s.c, "x", list(s.in), " weight ", s.o, "x", s.c / s.groups, "x", list(s.kernel),
             " stride ", list(s.stride), " padding ", list(s.padding), " dilation ", list(s.dilation),
             " groups ", s.groups, " y ", list(s.out), " workspace ", convolution_choice().workspace, "; ",
             state.properties.name, ", cuDNN ", cudnnGetVersion());
}

/// The device's time alone: several runs are queued while it is held up, so that it never waits for the host, as in a
/// recording that is replayed.
double seconds_of(const Call& call, const Descriptors& described, const Way& way) {
  constexpr int kRuns = 3;
  struct Event {
    cudaEvent_t event = nullptr;
    Event() { check(cudaEventCreate(&event), "cudaEventCreate"); }
    ~Event() { cudaEventDestroy(event); }
  } begin, end;
  const cudaStream_t stream = stream_of(call.args);
  hold_stream(call.args, 300'000);
  check(cudaEventRecord(begin.event, stream), "cudaEventRecord");
  for (int i = 0; i < kRuns; ++i)
    if (!run(call, described, way)) return -1;
  check(cudaEventRecord(end.event, stream), "cudaEventRecord");
  check(cudaEventSynchronize(end.event), "cudaEventSynchronize");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin.event, end.event), "cudaEventElapsedTime");
  return milliseconds / 1e3 / kRuns;
}

bool is_recording(const Call& call) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream_of(call.args), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

/// The algorithm of cuDNN that takes every shape in the mode `fixed`.
int fixed_algorithm(Pass pass) {
  return pass == Pass::forward          ? static_cast<int>(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)
         : pass == Pass::input_gradient ? static_cast<int>(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1)
                                        : static_cast<int>(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
}

std::shared_ptr<ConvPlan> make_plan(const Call& call) {
  DeviceState& state = state_of(call.args);
  auto plan = std::make_shared<ConvPlan>();
  std::vector<Way> ways;
  if (fits_library(call.shape)) {
    std::lock_guard lock(state.dnn_mutex);
    if (!state.dnn) check_dnn(cudnnCreate(&state.dnn), "cudnnCreate");
    describe_to_library(call.shape, plan->described);
    ways = library_ways(state.dnn, call.pass, plan->described);
  }
  const Way small{Way::small, 0, CUDNN_DEFAULT_MATH, 0, "small"}, direct;
  const ChoiceMode mode = convolution_choice().mode;
  if (mode == ChoiceMode::fixed) {
    for (const Way& way : ways)
      if (way.algorithm == fixed_algorithm(call.pass)) {
        plan->way = way;
        break;
      }
  } else if (mode == ChoiceMode::heuristic || is_recording(call)) {
    // A kernel of our own computes the call to say whether it can; it will compute it once more.
    plan->way = run_small(call) ? small : ways.empty() ? direct : ways[0];
  } else {
    ways.push_back(small);
    if (ways.size() == 1) ways.push_back(direct);
    std::vector<std::string> names;
    for (const Way& way : ways) names.push_back(way.name);
    plan->way = ways[choose_by_time(words_of(state, call.pass, call.shape), names, [&](size_t i) {
      try {
        return seconds_of(call, plan->described, ways[i]);
      } catch (const Error&) {  // proposed, and then refused by the library after all
        if (ways[i].means != Way::library) throw;
        return -1.;
      }
    })];
  }
  return plan;
}

void compute(const Call& call) {
  const auto plan =
      plans().get(key_of(state_of(call.args), call.pass, call.shape), [&] { return make_plan(call); });
  // A table that somebody else wrote may name what cannot do this.
  if (!run(call, plan->described, plan->way)) run(call, plan->described, Way{});
}

void zero_fill(const KernelArgs& args, const Buffer& out) {
  check(cudaMemsetAsync(out.data, 0, bytes_of(out.dtype) * static_cast<size_t>(out.size()), stream_of(args)),
        "cudaMemsetAsync");
}

/// The convolution behind a call of one of the three ops, which hold x, weight and y in different places.
template <Pass pass>
Convolution shape_of(const KernelArgs& args) {
  const Buffer &in0 = args.in[0], &in1 = args.in[1], &out = args.out[0];
  const auto& attributes = args.attributes<ConvAttrs>();
  if constexpr (pass == Pass::forward) return describe(in0, in1, out, attributes);
  if constexpr (pass == Pass::input_gradient) return describe(out, in1, in0, attributes);
  return describe(in1, out, in0, attributes);
}

template <Pass pass>
void convolution(const KernelArgs& args) {
  const Buffer &in0 = args.in[0], &in1 = args.in[1], &out = args.out[0];
  const void* bias = pass == Pass::forward && args.n_in == 3 ? args.in[2].data : nullptr;
  if (out.size() == 0) return;
  const Call call{args, pass, shape_of<pass>(args), in0.data, in1.data, bias, out.data};
  if (in0.size() > 0 && in1.size() > 0) return compute(call);
  zero_fill(args, out);
  if (bias) add_channel_bias(args, call.shape, bias, out.data);
}

template <Pass pass>
std::string algorithm(const KernelArgs& args) {
  if (!args.device) return "not run yet";
  const auto plan = plans().find(key_of(state_of(args), pass, shape_of<pass>(args)), nullptr);
  return plan ? plan->way.name : "not run yet";
}

}  // namespace

void register_conv_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_conv().kernels[kCuda] = &convolution<Pass::forward>;
  op_conv_input_gradient().kernels[kCuda] = &convolution<Pass::input_gradient>;
  op_conv_weight_gradient().kernels[kCuda] = &convolution<Pass::weight_gradient>;
  op_conv().algorithm[kCuda] = &algorithm<Pass::forward>;
  op_conv_input_gradient().algorithm[kCuda] = &algorithm<Pass::input_gradient>;
  op_conv_weight_gradient().algorithm[kCuda] = &algorithm<Pass::weight_gradient>;
}

}  // namespace tandem::cuda
