// conv and its gradients: the list of implementations, which are kernels of our own and cuDNN's algorithms except those that
// it calls nondeterministic, ordered by how long they should take (conv_cost.h). What was chosen for a shape (core/choices.h) is kept, so that it is the same for every call.
#include "tandem/ops/conv.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/conv_cost.h"
#include "tandem/backends/cuda/convolution.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/timing.h"

namespace tandem::cuda {

// The list: one row per implementation, the most wanted first; each is a function that its file defines. cuDNN's algorithms
// stand before the last, the one that should be fastest first.
// clang-format off
#define TD_CONV_IMPLEMENTATIONS(row) \
  row(small_conv)                    \
  row(direct_conv)
// clang-format on

#define TD_ROW(implementation) const ConvImplementation& implementation();
TD_CONV_IMPLEMENTATIONS(TD_ROW)
#undef TD_ROW

namespace {

void check_dnn(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    fail(status == CUDNN_STATUS_ALLOC_FAILED,
         str("conv: ", call, " failed: ", cudnnGetErrorString(status), "."));
}

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

/// One of cuDNN's algorithms, as cuDNN answered for one problem.
class LibraryConv final : public ConvImplementation {
 public:
  std::shared_ptr<const Descriptors> described;
  int algorithm = 0;  // of the pass's own enumeration
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  size_t bytes = 0;
  double seconds = 0;  // as estimated; 0 where it cannot
  std::string full_name, why_not;
  bool fixed = false;

  std::string name() const override { return full_name; }
  const char* can(const ConvProblem&) const override { return why_not.empty() ? nullptr : why_not.c_str(); }
  size_t workspace(const ConvProblem&) const override { return bytes; }
  void run(const ConvCall& call) const override;
  bool is_fixed() const override { return fixed; }

 private:
  void compute(const ConvCall& call) const;
};
using LibraryConvs = std::vector<std::unique_ptr<LibraryConv>>;

/// What was chosen for a problem. cuDNN's rows of the list belong to it.
struct ConvPlan {
  LibraryConvs library;
  const ConvImplementation* chosen = nullptr;
  Candidates candidates;
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

/// The algorithm of cuDNN that takes every shape in the mode `fixed`.
constexpr auto fixed_algorithm(cudnnConvolutionFwdAlgo_t) {
  return CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
}
constexpr auto fixed_algorithm(cudnnConvolutionBwdDataAlgo_t) { return CUDNN_CONVOLUTION_BWD_DATA_ALGO_1; }
constexpr auto fixed_algorithm(cudnnConvolutionBwdFilterAlgo_t) {
  return CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
}

LibraryAlgorithm kind_of(cudnnConvolutionFwdAlgo_t a) {
  switch (a) {
    case CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM:
      return LibraryAlgorithm::matrix_product;
    case CUDNN_CONVOLUTION_FWD_ALGO_FFT:
    case CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING:
      return LibraryAlgorithm::fft;
    case CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD:
    case CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED:
      return LibraryAlgorithm::winograd;
    default:
      return LibraryAlgorithm::slow_product;
  }
}
LibraryAlgorithm kind_of(cudnnConvolutionBwdDataAlgo_t a) {
  switch (a) {
    case CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT:
    case CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING:
      return LibraryAlgorithm::fft;
    case CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD:
    case CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED:
      return LibraryAlgorithm::winograd;
    default:
      return LibraryAlgorithm::matrix_product;
  }
}
LibraryAlgorithm kind_of(cudnnConvolutionBwdFilterAlgo_t a) {
  switch (a) {
    case CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT:
    case CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING:
      return LibraryAlgorithm::fft;
    case CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD:
    case CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED:
      return LibraryAlgorithm::winograd;
    default:
      return LibraryAlgorithm::matrix_product;
  }
}

/// What cuDNN is asked about.
struct Question {
  const ConvProblem& problem;
  const DeviceRates& device;
  const std::shared_ptr<const Descriptors>& described;
};

/// 16-bit types have matrix units under one math type alone: under another cuDNN converts to f32, many times as slowly.
double estimate(const Question& asked, LibraryAlgorithm kind, cudnnMathType_t math, size_t workspace) {
  const DType dtype = asked.problem.shape.dtype;
  const bool is_half = dtype == DType::bf16 || dtype == DType::f16;
  if (is_half && math != CUDNN_TENSOR_OP_MATH) kind = LibraryAlgorithm::slow_product;
  const bool matrix_units = math == CUDNN_TENSOR_OP_MATH ||
                            (dtype == DType::f32 && math == CUDNN_DEFAULT_MATH && asked.problem.tf32);
  return estimated_seconds(asked.problem, kind, matrix_units, workspace, asked.device);
}

/// cuDNN's proposals, the one with the least estimated time first (of equals, in its own order); then what it named besides, with the reason why not: unsupported, not
/// deterministic, or over the workspace that is allowed.
/// cuDNN may name one more than once: the first of a name is kept, and one that is able is not listed again as
/// refused.
template <class Perf, class Ask, class Workspace>
LibraryConvs proposals(const Question& asked, const Ask& ask, const Workspace& workspace_of) {
  LibraryConvs able, others;
  std::array<Perf, 16> found{};
  int count = 0;
  if (ask(static_cast<int>(found.size()), &count, found.data()) != CUDNN_STATUS_SUCCESS) count = 0;
  const size_t most = convolution_choice().workspace;
  const auto is_named = [](const LibraryConvs& list, const std::string& wanted) {
    for (const auto& row : list)
      if (row->full_name == wanted) return true;
    return false;
  };
  for (int i = 0; i < count; ++i) {
    const Perf& p = found[static_cast<size_t>(i)];
    auto row = std::make_unique<LibraryConv>();
    row->described = asked.described;
    row->algorithm = static_cast<int>(p.algo);
    row->math = p.mathType;
    row->full_name = str("cuDNN ", name(p.algo), ", ", name(p.mathType));
    row->fixed = p.algo == fixed_algorithm(p.algo);
    if (p.status != CUDNN_STATUS_SUCCESS)
      row->why_not = "it is not supported by cuDNN for this.";
    else if (p.determinism != CUDNN_DETERMINISTIC || excluded(p.algo))
      row->why_not = "it is not deterministic.";
    else if (kind_of(p.algo) == LibraryAlgorithm::winograd && asked.problem.shape.dtype == DType::f32 &&
             !asked.problem.tf32)
      row->why_not = "its results have fewer digits than f32, and TF32 is not allowed.";
    else if (cudnnSetConvolutionMathType(asked.described->convolution, p.mathType) != CUDNN_STATUS_SUCCESS ||
             workspace_of(p.algo, &row->bytes) != CUDNN_STATUS_SUCCESS)
      row->why_not = "it is refused by cuDNN for this.";
    else if (row->bytes > most)
      row->why_not = str("it takes ", row->bytes, " bytes of workspace, and ", most, " are allowed.");
    else
      row->seconds = estimate(asked, kind_of(p.algo), p.mathType, row->bytes);
    LibraryConvs& list = row->why_not.empty() ? able : others;
    if (!is_named(list, row->full_name)) list.push_back(std::move(row));
  }
  std::stable_sort(able.begin(), able.end(),
                   [](const auto& a, const auto& b) { return a->seconds < b->seconds; });
  for (auto& row : others)
    if (!is_named(able, row->full_name)) able.push_back(std::move(row));
  return able;
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

LibraryConvs library_rows(cudnnHandle_t dnn, const Question& asked) {
  const Descriptors& d = *asked.described;
  switch (asked.problem.pass) {
    case Pass::forward:
      return proposals<cudnnConvolutionFwdAlgoPerf_t>(
          asked,
          [&](int wanted, int* count, cudnnConvolutionFwdAlgoPerf_t* out) {
            return cudnnGetConvolutionForwardAlgorithm_v7(dnn, d.x, d.weight, d.convolution, d.y, wanted,
                                                          count, out);
          },
          [&](cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
            return cudnnGetConvolutionForwardWorkspaceSize(dnn, d.x, d.weight, d.convolution, d.y, algorithm,
                                                           bytes);
          });
    case Pass::input_gradient:
      return proposals<cudnnConvolutionBwdDataAlgoPerf_t>(
          asked,
          [&](int wanted, int* count, cudnnConvolutionBwdDataAlgoPerf_t* out) {
            return cudnnGetConvolutionBackwardDataAlgorithm_v7(dnn, d.weight, d.y, d.convolution, d.x, wanted,
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
      asked,
      [&](int wanted, int* count, cudnnConvolutionBwdFilterAlgoPerf_t* out) {
        return cudnnGetConvolutionBackwardFilterAlgorithm_v7(dnn, d.x, d.y, d.convolution, d.weight, wanted,
                                                             count, out);
      },
      [&](cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
        return cudnnGetConvolutionBackwardFilterWorkspaceSize(dnn, d.x, d.y, d.convolution, d.weight,
                                                              algorithm, bytes);
      });
}

void LibraryConv::run(const ConvCall& call) const {
  compute(call);
  if (call.bias) add_channel_bias(call.args, call.problem.shape, call.bias, call.out);
}

/// The handle has one stream and the descriptors, which all rows of a plan share, one math type: both are set for
/// this call under the lock.
void LibraryConv::compute(const ConvCall& call) const {
  const Descriptors& d = *described;
  DeviceState& state = state_of(call.args);
  std::lock_guard lock(state.dnn_mutex);
  if (const cudaStream_t stream = state.current_stream(); state.dnn_stream != stream) {
    check_dnn(cudnnSetStream(state.dnn, stream), "cudnnSetStream");
    state.dnn_stream = stream;
  }
  check_dnn(cudnnSetConvolutionMathType(d.convolution, math), "cudnnSetConvolutionMathType");
  void* work = bytes ? call.args.workspace(bytes) : nullptr;
  const float one_f = 1, zero_f = 0;
  const double one_d = 1, zero_d = 0;
  const bool is_double = call.problem.shape.dtype == DType::f64;
  const void* one = is_double ? static_cast<const void*>(&one_d) : &one_f;
  const void* zero = is_double ? static_cast<const void*>(&zero_d) : &zero_f;
  switch (call.problem.pass) {
    case Pass::forward:
      return check_dnn(cudnnConvolutionForward(state.dnn, one, d.x, call.a, d.weight, call.b, d.convolution,
                                               static_cast<cudnnConvolutionFwdAlgo_t>(algorithm), work, bytes,
                                               zero, d.y, call.out),
                       "cudnnConvolutionForward");
    case Pass::input_gradient:
      return check_dnn(
          cudnnConvolutionBackwardData(state.dnn, one, d.weight, call.b, d.y, call.a, d.convolution,
                                       static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm), work, bytes,
                                       zero, d.x, call.out),
          "cudnnConvolutionBackwardData");
    case Pass::weight_gradient:
      return check_dnn(cudnnConvolutionBackwardFilter(state.dnn, one, d.x, call.b, d.y, call.a, d.convolution,
                                                      static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm),
                                                      work, bytes, zero, d.weight, call.out),
                       "cudnnConvolutionBackwardFilter");
  }
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
/// Whether tf32 is allowed is not among them: setting it empties the cache (ChoiceCache).
Key key_of(const DeviceState& state, const ConvProblem& p) {
  const Convolution& s = p.shape;
  Key key{state.index, static_cast<int64_t>(p.pass), static_cast<int64_t>(s.dtype), s.n, s.c, s.o, s.groups};
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
std::string words_of(const DeviceState& state, const ConvProblem& p) {
  const Convolution& s = p.shape;
  const auto list = [](const Axes3& a) { return str(a[0], "x", a[1], "x", a[2]); };
  const OpDef& op = p.pass == Pass::forward          ? op_conv()
                    : p.pass == Pass::input_gradient ? op_conv_input_gradient()
                                                     : op_conv_weight_gradient();
  return str(op.name, " ", tandem::name(s.dtype), s.dtype == DType::f32 && p.tf32 ? " as tf32" : "", " x ",
             s.n, "x", s.c, "x", list(s.in), " weight ", s.o, "x", s.c / s.groups, "x", list(s.kernel),
             " stride ", list(s.stride), " padding ", list(s.padding), " dilation ", list(s.dilation),
             " groups ", s.groups, " y ", list(s.out), " workspace ", convolution_choice().workspace, "; ",
             state.properties.name, ", cuDNN ", cudnnGetVersion());
}

/// The rows of cuDNN for a problem.
LibraryConvs ask_library(DeviceState& state, const ConvProblem& problem) {
  if (!fits_library(problem.shape)) {
    LibraryConvs refused;
    refused.push_back(std::make_unique<LibraryConv>());
    refused[0]->full_name = "cuDNN";
    refused[0]->why_not = "it takes tensors of less than 2^31 elements and outputs of full size only.";
    return refused;
  }
  std::lock_guard lock(state.dnn_mutex);
  if (!state.dnn) check_dnn(cudnnCreate(&state.dnn), "cudnnCreate");
  const auto described = std::make_shared<Descriptors>();
  describe_to_library(problem.shape, *described);
  return library_rows(state.dnn, {problem, rates_of(state.index), described});
}

std::shared_ptr<ConvPlan> make_plan(const ConvCall& call) {
  DeviceState& state = state_of(call.args);
  const ConvProblem& problem = call.problem;
  auto plan = std::make_shared<ConvPlan>();
  plan->library = ask_library(state, problem);
  static const ConvImplementation* const own_rows[] = {
#define TD_ROW(implementation) &implementation(),
      TD_CONV_IMPLEMENTATIONS(TD_ROW)
#undef TD_ROW
  };
  // Our own but the last, cuDNN's, then the last.
  std::vector<const ConvImplementation*> rows(own_rows, std::end(own_rows) - 1);
  for (const auto& row : plan->library) rows.push_back(row.get());
  rows.push_back(*(std::end(own_rows) - 1));
  const Implementations<ConvProblem, ConvCall> list(rows);
  const ConvolutionChoice choice = convolution_choice();
  // The last, which is slow, is timed only where cuDNN has nothing.
  const bool has_library = !plan->library.empty() && !plan->library[0]->can(problem);
  const auto seconds = [&](const ConvImplementation& row) {
    if (has_library && &row == rows.back()) return -1.;
    try {
      return device_seconds(call.args, [&] { row.run(call); });
    } catch (const Error&) {  // proposed, and then refused by the library after all
      if (!dynamic_cast<const LibraryConv*>(&row)) throw;
      return -1.;
    }
  };
  plan->chosen = choice.mode != ChoiceMode::profile ? &list.by_rule(choice.mode, problem)
                 : is_recording(call.args)
                     ? &list.by_rule(ChoiceMode::heuristic, problem)
                     : &list.by_time(problem, words_of(state, problem), choice.keep, seconds);
  plan->candidates = {list.candidates(problem), plan->chosen->name()};
  return plan;
}

void compute(const ConvCall& call) {
  plans().get(key_of(state_of(call.args), call.problem), [&] { return make_plan(call); })->chosen->run(call);
}

void zero_fill(const KernelArgs& args, const Buffer& out) {
  check(cudaMemsetAsync(out.data, 0, bytes_of(out.dtype) * static_cast<size_t>(out.size()), stream_of(args)),
        "cudaMemsetAsync");
}

/// The problem behind a call of one of the three ops, which hold x, weight and y in different places.
template <Pass pass>
ConvProblem problem_of(const KernelArgs& args) {
  const Buffer &in0 = args.in[0], &in1 = args.in[1], &out = args.out[0];
  const auto& attributes = args.attributes<ConvAttrs>();
  return {pass,
          pass == Pass::forward          ? describe(in0, in1, out, attributes)
          : pass == Pass::input_gradient ? describe(out, in1, in0, attributes)
                                         : describe(in1, out, in0, attributes),
          state_of(args).properties.major, allow_tf32()};
}

template <Pass pass>
void convolution(const KernelArgs& args) {
  const Buffer &in0 = args.in[0], &in1 = args.in[1], &out = args.out[0];
  const void* bias = pass == Pass::forward && args.n_in == 3 ? args.in[2].data : nullptr;
  if (out.size() == 0) return;
  const ConvCall call{args, problem_of<pass>(args), in0.data, in1.data, bias, out.data};
  if (in0.size() > 0 && in1.size() > 0) return compute(call);
  // An empty sum: no channels, or no images to sum weights over.
  zero_fill(args, out);
  if (bias) add_channel_bias(args, call.problem.shape, bias, out.data);
}

template <Pass pass>
Candidates candidates(const KernelArgs& args) {
  if (!args.device) return {{}, "not run yet"};
  const auto plan = plans().find(key_of(state_of(args), problem_of<pass>(args)), nullptr);
  return plan ? plan->candidates : Candidates{{}, "not run yet"};
}

}  // namespace

void register_conv_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_conv().kernels[kCuda] = &convolution<Pass::forward>;
  op_conv_input_gradient().kernels[kCuda] = &convolution<Pass::input_gradient>;
  op_conv_weight_gradient().kernels[kCuda] = &convolution<Pass::weight_gradient>;
  op_conv().candidates[kCuda] = &candidates<Pass::forward>;
  op_conv_input_gradient().candidates[kCuda] = &candidates<Pass::input_gradient>;
  op_conv_weight_gradient().candidates[kCuda] = &candidates<Pass::weight_gradient>;
}

}  // namespace tandem::cuda
