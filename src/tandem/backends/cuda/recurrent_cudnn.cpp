// Whole recurrent layers by cuDNN. It is asked for one layer and direction, padded sequences of one length, two biases and no dropout; its
// gates have the order of ours. Weights and biases go into one buffer of its own layout and come out of one, and its gradient changes what
// the forward pass kept, so that it works on a copy.
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "tandem/backends/cuda/capture.h"
#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/recurrent_library.h"
#include "tandem/backends/cuda/timing.h"
#include "tandem/core/choice_cache.h"
#include "tandem/core/op.h"
#include "tandem/ops/recurrent_layer.h"
#include "tandem/ops/recurrent_steps.h"

namespace tandem::cuda {

namespace {

void check_rnn(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    fail(status == CUDNN_STATUS_ALLOC_FAILED,
         str("recurrent_layer: ", call, " failed: ", cudnnGetErrorString(status), "."));
}

struct Algorithm {
  const char* name;
  cudnnRNNAlgo_t value;
};
/// CUDNN_RNN_ALGO_PERSIST_STATIC and _DYNAMIC are not among them: their blocks wait for each other all over the device, which a
/// recording that runs other kernels beside them does not promise.
constexpr Algorithm kAlgorithms[] = {{"cuDNN standard", CUDNN_RNN_ALGO_STANDARD},
                                     {"cuDNN small", CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H}};

/// cuDNN says that its recurrent layers give the same bits each time only where cuBLAS has buffers of one size, which its
/// environment must say before it begins.
const char* why_not_deterministic() {
  static const bool has_one_size = [] {
    const char* const text = std::getenv("CUBLAS_WORKSPACE_CONFIG");
    if (!text) return false;
    int colons = 0;  // ":4096:2" is one size, ":16:8:4096:2" two
    for (const char c : std::string_view(text)) colons += c == ':';
    return colons == 2 && *text == ':';
  }();
  return has_one_size
             ? nullptr
             : "it is deterministic only in a process that began with CUBLAS_WORKSPACE_CONFIG=:4096:2.";
}

/// Null where cuDNN has none to give, as without the part of it that has recurrent layers.
template <class T, cudnnStatus_t (*create)(T*), cudnnStatus_t (*destroy)(T)>
struct Owned {
  T value = nullptr;
  Owned() {
    if (create(&value) != CUDNN_STATUS_SUCCESS) value = nullptr;
  }
  ~Owned() {
    if (value) (void)destroy(value);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  operator T() const { return value; }
};
using TensorDescriptor =
    Owned<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;

/// What cuDNN is told of a layer and answers. Sizes and places are in bytes.
struct Plan {
  Owned<cudnnDropoutDescriptor_t, cudnnCreateDropoutDescriptor, cudnnDestroyDropoutDescriptor> dropout;
  Owned<cudnnRNNDescriptor_t, cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor> layer;
  Owned<cudnnRNNDataDescriptor_t, cudnnCreateRNNDataDescriptor, cudnnDestroyRNNDataDescriptor> x, y;
  TensorDescriptor state;
  size_t weights = 0, work = 0, kept = 0;
  std::array<size_t, 4> places{}, bytes{};  // of weight_ih, weight_hh, bias_ih and bias_hh among the weights
  const char* why_not = nullptr;
};

cudnnDataType_t data_type(DType dtype) {
  return dtype == DType::f64    ? CUDNN_DATA_DOUBLE
         : dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16
         : dtype == DType::f16  ? CUDNN_DATA_HALF
                                : CUDNN_DATA_FLOAT;
}

cudnnRNNMode_t mode_of(Recurrence kind) {
  return kind == Recurrence::lstm       ? CUDNN_LSTM
         : kind == Recurrence::gru      ? CUDNN_GRU
         : kind == Recurrence::rnn_tanh ? CUDNN_RNN_TANH
                                        : CUDNN_RNN_RELU;
}

/// Why an algorithm is not asked for a layer; null: cuDNN is asked.
const char* why_not_asked(const LayerProblem& p, cudnnRNNAlgo_t algorithm) {
  const bool gated = gates_of(p.kind) > 1;
  if (algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H) {
    if (p.dtype == DType::f64) return "it takes f32 and 16-bit types only.";
    if (p.hidden > (gated ? 128 : 256))
      return gated ? "it takes up to 128 units of lstm and gru only." : "it takes up to 256 units only.";
  }
  constexpr double kLimit = 2147483648.;
  const auto rows = static_cast<double>(gates_of(p.kind) * p.hidden), wide = static_cast<double>(p.features);
  const double most = std::max(rows, wide);
  if (p.samples == 0) return "it takes at least one sample.";
  if (static_cast<double>(p.steps) * static_cast<double>(p.samples) * most >= kLimit || rows * most >= kLimit)
    return "it takes tensors of less than 2^31 elements only.";
  return nullptr;
}

/// Where a gate's matrices and biases lie in cuDNN's buffer. False where they do not follow each other as ours do.
bool find_weights(cudnnHandle_t dnn, const LayerProblem& p, const char* buffer, Plan& plan) {
  const TensorDescriptor matrix, bias;
  if (!matrix || !bias) return false;
  const int gates = static_cast<int>(gates_of(p.kind));
  const size_t element = bytes_of(p.dtype), hidden = static_cast<size_t>(p.hidden);
  for (int side = 0; side < 2; ++side) {  // of the input, of the state
    const size_t columns = side ? hidden : static_cast<size_t>(p.features);
    const size_t of_matrix = hidden * columns * element, of_bias = hidden * element;
    for (int gate = 0; gate < gates; ++gate) {
      void *matrix_at = nullptr, *bias_at = nullptr;
      if (cudnnGetRNNWeightParams(dnn, plan.layer, 0, plan.weights, buffer, side * gates + gate, matrix,
                                  &matrix_at, bias, &bias_at) != CUDNN_STATUS_SUCCESS ||
          !matrix_at || !bias_at)
        return false;
      const auto place = [&](void* at) { return static_cast<size_t>(static_cast<char*>(at) - buffer); };
      const size_t at = static_cast<size_t>(side), behind = static_cast<size_t>(gate);
      if (gate == 0) plan.places[at] = place(matrix_at), plan.places[at + 2] = place(bias_at);
      if (place(matrix_at) != plan.places[at] + behind * of_matrix ||
          place(bias_at) != plan.places[at + 2] + behind * of_bias)
        return false;
      plan.bytes[at] = (behind + 1) * of_matrix, plan.bytes[at + 2] = (behind + 1) * of_bias;
    }
  }
  for (size_t i = 0; i < 4; ++i)
    if (plan.places[i] + plan.bytes[i] > plan.weights) return false;
  return true;
}

/// Asks cuDNN; the state's lock is held.
void describe(DeviceState& state, const LayerProblem& p, cudnnRNNAlgo_t algorithm, Plan& plan) {
  const cudnnDataType_t type = data_type(p.dtype);
  const cudnnDataType_t computed = p.dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  const cudnnMathType_t math = p.dtype == DType::f16                    ? CUDNN_TENSOR_OP_MATH
                               : p.dtype == DType::f32 && !allow_tf32() ? CUDNN_FMA_MATH
                                                                        : CUDNN_DEFAULT_MATH;
  const int steps = static_cast<int>(p.steps), samples = static_cast<int>(p.samples),
            features = static_cast<int>(p.features), hidden = static_cast<int>(p.hidden);
  const std::vector<int> lengths(static_cast<size_t>(samples), steps);
  const auto set_data = [&](cudnnRNNDataDescriptor_t data, int size) {
    return cudnnSetRNNDataDescriptor(data, type, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, steps, samples,
                                     size, lengths.data(), nullptr);
  };
  const int sizes[3] = {1, samples, hidden}, strides[3] = {samples * hidden, hidden, 1};
  if (!plan.dropout || !plan.layer || !plan.x || !plan.y || !plan.state ||
      cudnnSetDropoutDescriptor(plan.dropout, state.dnn, 0, nullptr, 0, 0) != CUDNN_STATUS_SUCCESS ||
      cudnnSetRNNDescriptor_v8(plan.layer, algorithm, mode_of(p.kind), CUDNN_RNN_DOUBLE_BIAS,
                               CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, type, computed, math, features,
                               hidden, hidden, 1, plan.dropout,
                               CUDNN_RNN_PADDED_IO_ENABLED) != CUDNN_STATUS_SUCCESS ||
      set_data(plan.x, features) != CUDNN_STATUS_SUCCESS ||
      set_data(plan.y, hidden) != CUDNN_STATUS_SUCCESS ||
      cudnnSetTensorNdDescriptor(plan.state, type, 3, sizes, strides) != CUDNN_STATUS_SUCCESS ||
      cudnnGetRNNWeightSpaceSize(state.dnn, plan.layer, &plan.weights) != CUDNN_STATUS_SUCCESS ||
      cudnnGetRNNTempSpaceSizes(state.dnn, plan.layer, CUDNN_FWD_MODE_TRAINING, plan.x, &plan.work,
                                &plan.kept) != CUDNN_STATUS_SUCCESS) {
    plan.why_not = "it is refused by cuDNN for this.";
    return;
  }
  void* const buffer = state.memory.allocate(plan.weights);  // whose addresses are all that is looked at
  const bool found = find_weights(state.dnn, p, static_cast<const char*>(buffer), plan);
  state.memory.free(buffer, plan.weights);
  if (!found) plan.why_not = "it has its weights in an order other than ours.";
}

using Key = std::pair<LayerProblem, int64_t>;
/// Whether tf32 is allowed is not part of the key: setting it empties the cache (ChoiceCache).
std::shared_ptr<const Plan> plan_of(DeviceState& state, const LayerProblem& p, int64_t algorithm) {
  static auto& plans = *new ChoiceCache<Key, std::shared_ptr<const Plan>>;
  return plans.get({p, algorithm}, [&] {
    const cudnnRNNAlgo_t value = kAlgorithms[algorithm].value;
    auto plan = std::make_shared<Plan>();
    plan->why_not = why_not_asked(p, value);
    if (plan->why_not) return plan;
    std::lock_guard lock(state.dnn_mutex);
    if (!state.dnn) check_rnn(cudnnCreate(&state.dnn), "cudnnCreate");
    describe(state, p, value, *plan);
    return plan;
  });
}

std::vector<LayerAlgorithm> algorithms(const LayerProblem& p) {
  std::vector<LayerAlgorithm> all;
  for (int64_t i = 0; i < static_cast<int64_t>(std::size(kAlgorithms)); ++i) {
    const auto plan = plan_of(device_state(p.device_index), p, i);
    const char* const why_not = plan->why_not ? plan->why_not : why_not_deterministic();
    all.push_back({kAlgorithms[i].name, why_not ? why_not : "", static_cast<int64_t>(plan->kept)});
  }
  return all;
}

// ---- the kernels

size_t aligned(size_t bytes) { return (bytes + 511) / 512 * 512; }
size_t whole_bytes(const Buffer& b) { return bytes_of(b.dtype) * static_cast<size_t>(b.size()); }

/// A call of one of the two ops.
struct Call {
  const KernelArgs& args;
  const RecurrentLayerAttrs& a;
  LayerOperands<Buffer> in;
  DeviceState& state;
  cudaStream_t stream;
  LayerProblem problem;

  Call(const KernelArgs& args, bool gradient)
      : args(args),
        a(args.attributes<RecurrentLayerAttrs>()),
        in(a, gradient, args.in),
        state(state_of(args)),
        stream(state.current_stream()),
        problem{DeviceKind::cuda, state.index,    in.x->dtype,           a.kind, a.has_bias, in.x->shape[0],
                in.x->shape[1],   in.x->shape[2], in.weight_hh->shape[1]} {}

  std::shared_ptr<const Plan> plan() const {
    constexpr auto kCount = static_cast<int64_t>(std::size(kAlgorithms));
    TD_CHECK(a.algorithm < kCount, "recurrent_layer: algorithm must be from 0 to ", kCount - 1,
             " on a GPU; got ", a.algorithm, ".");
    auto plan = plan_of(state, problem, a.algorithm);
    TD_CHECK(!plan->why_not, "recurrent_layer: ", kAlgorithms[a.algorithm].name,
             " must be able to compute the layer; ", plan->why_not, " Use recurrent_layer(), which chooses.");
    TD_CHECK(static_cast<size_t>(a.kept) >= plan->kept, "recurrent_layer: kept must be at least ", plan->kept,
             " bytes for this layer; got ", a.kept, ". Use recurrent_layer(), which knows.");
    return plan;
  }
  /// The weights in cuDNN's buffer. Biases that are not there are zeros.
  void gather_weights(const Plan& plan, char* to) const {
    zero(to, plan.weights);
    const Buffer* const parts[] = {in.weight_ih, in.weight_hh, in.bias_ih, in.bias_hh};
    for (size_t i = 0; i < 4; ++i)
      if (parts[i]) copy(to + plan.places[i], parts[i]->data, plan.bytes[i]);
  }
  /// Bytes of copies of the inputs that do not begin at a multiple of 16 bytes, as a part of a tensor may.
  size_t bytes_to_place(std::initializer_list<const Buffer*> inputs) const {
    size_t bytes = 0;
    for (const Buffer* b : inputs)
      if (!is_placed(b)) bytes += aligned(whole_bytes(*b));
    return bytes;
  }
  /// The input, or its copy, which takes its bytes at `free`. Null stays null.
  const void* placed(const Buffer* b, char*& free) const {
    if (is_placed(b)) return b ? b->data : nullptr;
    void* const to = free;
    copy(to, b->data, whole_bytes(*b));
    free += aligned(whole_bytes(*b));
    return to;
  }
  static bool is_placed(const Buffer* b) { return !b || reinterpret_cast<uintptr_t>(b->data) % 16 == 0; }
  void copy(void* to, const void* from, size_t bytes) const {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  }
  void zero(void* to, size_t bytes) const {
    if (bytes) check(cudaMemsetAsync(to, 0, bytes, stream), "cudaMemsetAsync");
  }
  void zero_outputs() const {
    for (int i = 0; i < args.n_out; ++i) zero(args.out[i].data, whole_bytes(args.out[i]));
  }
};

/// The handle for a call: its lock, and the call's stream as its stream. Calls that are recorded run one after the other, since they share
/// memory that cuDNN keeps with its handle; by what they read alone, two directions of a layer would run side by side.
class Turn {
 public:
  explicit Turn(const Call& call) : call_(call), lock_(call.state.dnn_mutex), last_(last_of(call.state)) {
    if (call.state.dnn_stream != call.stream) {
      check_rnn(cudnnSetStream(call.state.dnn, call.stream), "cudnnSetStream");
      call.state.dnn_stream = call.stream;
    }
    const unsigned long long recording = recording_of(call.stream);
    if (recording == 0 || recording != last_.recording) return;
    check(cudaStreamUpdateCaptureDependencies(call.stream, last_.nodes.data(), nullptr, last_.nodes.size(),
                                              cudaStreamAddCaptureDependencies),
          "cudaStreamUpdateCaptureDependencies");
  }
  /// After the last of cuDNN's calls.
  void end() {
    last_.recording = recording_of(call_.stream);
    if (last_.recording != 0) last_.nodes = waiting_for(call_.stream);
  }

 private:
  struct Last {
    unsigned long long recording = 0;
    std::vector<cudaGraphNode_t> nodes;
  };
  static Last& last_of(const DeviceState& state) {
    static auto& all = *new std::array<Last, 256>;
    return all[static_cast<size_t>(state.index)];
  }
  /// Names what a stream records; 0: nothing.
  static unsigned long long recording_of(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long recording = 0;
    check(cudaStreamGetCaptureInfo(stream, &status, &recording, nullptr, nullptr, nullptr, nullptr),
          "cudaStreamGetCaptureInfo");
    return status == cudaStreamCaptureStatusActive ? recording : 0;
  }

  const Call& call_;
  std::lock_guard<Mutex> lock_;
  Last& last_;
};

void forward(const KernelArgs& args) {
  const Call call(args, false);
  if (call.problem.samples == 0) return call.zero_outputs();
  const auto plan = call.plan();
  const LayerOperands<Buffer>& in = call.in;
  const cudnnTensorDescriptor_t cells = in.c ? plan->state.value : nullptr;
  Turn turn(call);
  char* const weights = static_cast<char*>(
      args.workspace(aligned(plan->weights) + aligned(plan->work) + call.bytes_to_place({in.x, in.h, in.c})));
  char *const work = weights + aligned(plan->weights), *free = work + aligned(plan->work);
  call.gather_weights(*plan, weights);
  const void *const x = call.placed(in.x, free), *const h = call.placed(in.h, free),
                    *const c = call.placed(in.c, free);
  check_rnn(cudnnRNNForward(call.state.dnn, plan->layer, CUDNN_FWD_MODE_TRAINING, nullptr, plan->x, x,
                            plan->y, args.out[0].data, plan->state, h, args.out[1].data, cells, c,
                            in.c ? args.out[2].data : nullptr, plan->weights, weights, plan->work, work,
                            plan->kept, args.out[args.n_out - 1].data),
            "cudnnRNNForward");
  turn.end();
}

void backward(const KernelArgs& args) {
  const Call call(args, true);
  if (call.problem.samples == 0) return call.zero_outputs();
  const auto plan = call.plan();
  const LayerOperands<Buffer>& in = call.in;
  const cudnnTensorDescriptor_t cells = in.c ? plan->state.value : nullptr;
  Turn turn(call);
  const size_t of_weights = aligned(plan->weights), of_kept = aligned(plan->kept),
               of_work = aligned(plan->work);
  char* const weights = static_cast<char*>(args.workspace(
      2 * of_weights + of_kept + of_work +
      call.bytes_to_place({in.x, in.h, in.c, in.output, in.grad_output, in.grad_h, in.grad_c})));
  char *const gradients = weights + of_weights, *const kept = gradients + of_weights,
              *const work = kept + of_kept, *free = work + of_work;
  call.gather_weights(*plan, weights);
  call.copy(kept, in.kept->data, plan->kept);
  const void *const x = call.placed(in.x, free), *const h = call.placed(in.h, free),
                    *const c = call.placed(in.c, free), *const y = call.placed(in.output, free),
                    *const grad_y = call.placed(in.grad_output, free),
                    *const grad_h = call.placed(in.grad_h, free),
                    *const grad_c = call.placed(in.grad_c, free);
  check_rnn(cudnnRNNBackwardData_v8(call.state.dnn, plan->layer, nullptr, plan->y, y, grad_y, plan->x,
                                    args.out[0].data, plan->state, h, grad_h, args.out[3].data, cells, c,
                                    grad_c, in.c ? args.out[4].data : nullptr, plan->weights, weights,
                                    plan->work, work, plan->kept, kept),
            "cudnnRNNBackwardData_v8");
  call.zero(gradients, plan->weights);  // cuDNN adds to what is there
  check_rnn(cudnnRNNBackwardWeights_v8(call.state.dnn, plan->layer, CUDNN_WGRAD_MODE_ADD, nullptr, plan->x, x,
                                       plan->state, h, plan->y, y, plan->weights, gradients, plan->work, work,
                                       plan->kept, kept),
            "cudnnRNNBackwardWeights_v8");
  turn.end();
  const Buffer* const parts[] = {&args.out[1], &args.out[2],
                                 call.a.has_bias ? &args.out[args.n_out - 2] : nullptr,
                                 call.a.has_bias ? &args.out[args.n_out - 1] : nullptr};
  for (size_t i = 0; i < 4; ++i)
    if (parts[i]) call.copy(parts[i]->data, gradients + plan->places[i], plan->bytes[i]);
}

template <bool gradient>
Candidates candidates(const KernelArgs& args) {
  if (!args.device) return {{}, "not run yet"};
  const Call call(args, gradient);
  Candidates seen{{{kOwnLayer, "", 0}}, "none"};
  const std::vector<LayerAlgorithm> all = algorithms(call.problem);
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t work = plan_of(call.state, call.problem, static_cast<int64_t>(i))->work;
    seen.all.push_back({all[i].name, all[i].why_not, all[i].why_not.empty() ? work : 0});
    if (static_cast<int64_t>(i) == call.a.algorithm) seen.chosen = all[i].name;
  }
  return seen;
}

}  // namespace

void add_library_rows(const RecurrentAttrs& a, std::vector<Candidate>& rows) {
  const char* const cannot = why_not_deterministic();
  const char* const why_not =
      a.has_state_mask || a.has_keeps_h || a.has_keeps_c || a.has_candidates || a.keep_h != 0 ||
              a.keep_c != 0 || a.candidate_scale != 1
          ? "it takes no regularisers within the steps."
      : a.has_norm || a.has_projection ? "it takes neither layer norm nor projections."
      : a.has_lengths                  ? "it takes lengths from the host only."
      : cannot                         ? cannot
               : "it takes the inputs themselves: mode profile times it for whole layers.";
  for (const Algorithm& one : kAlgorithms) rows.push_back({one.name, why_not, 0});
}

void register_recurrent_layer_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  (void)why_not_deterministic();  // as the environment is now
  op_recurrent_layer().kernels[kCuda] = &forward;
  op_recurrent_layer_gradient().kernels[kCuda] = &backward;
  op_recurrent_layer().candidates[kCuda] = &candidates<false>;
  op_recurrent_layer_gradient().candidates[kCuda] = &candidates<true>;
  layer_library(DeviceKind::cuda) = {algorithms,
                                     [](Device device, const std::function<void()>& run) {
                                       KernelArgs args;
                                       args.device = &device_state(device.index);
                                       return device_seconds(args, run);
                                     },
                                     [](Device device) {
                                       return str(device_state(device.index).properties.name, ", cuDNN ",
                                                  cudnnGetVersion(), ", cuBLASLt ", cublasLtGetVersion());
                                     }};
}

}  // namespace tandem::cuda
