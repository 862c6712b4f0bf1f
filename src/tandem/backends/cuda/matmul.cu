// Matrix products: the list of implementations, of which cuBLASLt and a plain kernel for integers are here. Its algorithm for a
// shape is cuBLASLt's first heuristic choice among those that sum in a fixed order; it is looked up once and kept, so
// that it is the same for every call.
//
// cuBLASLt thinks in columns: a row-major out (M, N) is a column-major (N, M), so the call computes
// outᵀ = bᵀ · aᵀ with b as its first operand.
#include <array>
#include <map>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/backends/cuda/matrix.h"
#include "tandem/backends/cuda/strided_copy.h"
#include "tandem/backends/cuda/timing.h"
#include "tandem/core/op.h"
#include "tandem/ops/matmul.h"

namespace tandem::cuda {

// The list: one row per implementation, the most wanted first; each is a function that its file defines.
// clang-format off
#define TD_PRODUCT_IMPLEMENTATIONS(row) \
  row(small_product)                    \
  row(split_product)                    \
  row(cublas_product)                   \
  row(integer_product)
// clang-format on

#define TD_ROW(implementation) const ProductImplementation& implementation();
TD_PRODUCT_IMPLEMENTATIONS(TD_ROW)
#undef TD_ROW

namespace {

void check_blas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail(status == CUBLAS_STATUS_ALLOC_FAILED,
         str("matmul: ", call, " failed: ", cublasLtGetStatusName(status), " (",
             cublasLtGetStatusString(status), ")."));
}

/// A matrix of the product as cuBLASLt can take it: column-major, its transpose or itself.
struct Stored {
  const void* data;
  cublasOperation_t operation;  // makes the transposed logical matrix of what is stored
  int64_t rows, columns, leading, batch_stride;
  bool needs_copy;
};

/// Finds the form of a logical (rows, columns) matrix by its strides.
/// A row-major matrix is the transposed one column-major, which is what is wanted: OP_N. Where the rows are adjacent
/// instead, OP_T. The stride of an axis of size 1 says nothing, so it is replaced. Strides that overlap (an expanded
/// axis has 0) or leave gaps on both axes are copied.
Stored find_form(const Matrix& m) {
  if ((m.column_stride == 1 || m.columns == 1) && (m.rows == 1 || m.row_stride >= m.columns))
    return {m.data,         CUBLAS_OP_N, m.columns, m.rows, m.rows == 1 ? m.columns : m.row_stride,
            m.batch_stride, false};
  if ((m.row_stride == 1 || m.rows == 1) && (m.columns == 1 || m.column_stride >= m.rows))
    return {m.data,         CUBLAS_OP_T, m.rows, m.columns, m.columns == 1 ? m.rows : m.column_stride,
            m.batch_stride, false};
  return {m.data, CUBLAS_OP_N, m.columns, m.rows, m.columns, m.rows * m.columns, true};
}

/// All that the choice of an algorithm depends on.
using PlanKey = std::array<int64_t, 18>;

struct MatmulPlan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace = 0;
};

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

cublasLtMatrixLayout_t make_layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t leading,
                                   int batches, int64_t batch_stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(columns), leading),
             "cublasLtMatrixLayoutCreate");
  if (batches > 1) {
    check_blas(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches,
                                                sizeof(batches)),
               "cublasLtMatrixLayoutSetAttribute");
    check_blas(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &batch_stride, sizeof(batch_stride)),
               "cublasLtMatrixLayoutSetAttribute");
  }
  return layout;
}

/// 16 where every matrix of the batch begins at a multiple of 16 bytes, else the element's size. Only this
/// much of an address may influence the choice.
uint32_t alignment(const void* data, int64_t leading, int64_t batch_stride, size_t element) {
  const auto bits = reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(leading) * element |
                    static_cast<uintptr_t>(batch_stride) * element;
  return bits % 16 == 0 ? 16 : static_cast<uint32_t>(element);
}

/// The descriptors are made once and kept with the plan; only the bias pointer changes from call to call.
MatmulPlan make_plan(DeviceState& state, const Product& p, const Stored& first, const Stored& second,
                     bool epilogue, const std::array<uint32_t, 3>& aligned) {
  MatmulPlan plan;
  const cudaDataType_t type = data_type(p.dtype);
  const cublasComputeType_t compute = p.dtype == DType::f64                   ? CUBLAS_COMPUTE_64F
                                      : p.dtype == DType::f32 && allow_tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                              : CUBLAS_COMPUTE_32F;
  check_blas(
      cublasLtMatmulDescCreate(&plan.operation, compute, p.dtype == DType::f64 ? CUDA_R_64F : CUDA_R_32F),
      "cublasLtMatmulDescCreate");
  const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
    check_blas(cublasLtMatmulDescSetAttribute(plan.operation, what, &value, sizeof(value)),
               "cublasLtMatmulDescSetAttribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, first.operation);
  set(CUBLASLT_MATMUL_DESC_TRANSB, second.operation);
  if (epilogue) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  const int batches = static_cast<int>(p.batches);
  plan.first = make_layout(type, first.rows, first.columns, first.leading, batches, first.batch_stride);
  plan.second = make_layout(type, second.rows, second.columns, second.leading, batches, second.batch_stride);
  plan.out = make_layout(p.wide_out ? CUDA_R_32F : type, p.n, p.m, p.n, batches, p.m * p.n);

  cublasLtMatmulPreference_t preference = nullptr;
  check_blas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    check_blas(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof(value)),
               "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kLibraryWorkspace);
  // Sums split over blocks are joined in workspace, in a fixed order and in the compute type.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned[0]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned[1]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned[2]);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned[2]);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(state.blas, plan.operation, plan.first, plan.second, plan.out, plan.out,
                                     preference, 1, &result, &found);
  (void)cublasLtMatmulPreferenceDestroy(preference);
  check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
  TD_CHECK(found > 0, "matmul: cuBLASLt must know an algorithm for the shape; got none for (", p.m, ", ", p.k,
           ") x (", p.k, ", ", p.n, ") of ", p.dtype, ".");
  plan.algorithm = result.algo;
  plan.workspace = result.workspaceSize;
  return plan;
}

}  // namespace

bool needs_copy(const Matrix& matrix) { return find_form(matrix).needs_copy; }

void library_product(const KernelArgs& args, const Product& product, void* given) {
  Product p = product;
  DeviceState& state = state_of(args);
  const cudaStream_t stream = stream_of(args);
  const size_t element = bytes_of(p.dtype);
  Stored first = find_form(p.b), second = find_form(p.a);
  // The f64 path has no epilogue: the bias is laid out first and added to.
  const bool epilogue = p.bias && p.dtype != DType::f64, preset = p.bias && !epilogue;
  const bool copies_bias = epilogue && p.bias_stride != 1 && p.n > 1;
  const auto rounded = [](size_t bytes) { return (bytes + 255) / 256 * 256; };
  const size_t first_bytes =
      first.needs_copy ? rounded(element * static_cast<size_t>(p.batches * p.k * p.n)) : 0;
  const size_t second_bytes =
      second.needs_copy ? rounded(element * static_cast<size_t>(p.batches * p.m * p.k)) : 0;
  const size_t bias_bytes = copies_bias ? rounded(element * static_cast<size_t>(p.n)) : 0;
  const std::array<uint32_t, 3> aligned{
      first.needs_copy ? 16 : alignment(first.data, first.leading, first.batch_stride, element),
      second.needs_copy ? 16 : alignment(second.data, second.leading, second.batch_stride, element),
      alignment(p.out, p.n, p.m * p.n, element)};

  const PlanKey key{state.index,
                    static_cast<int64_t>(p.dtype),
                    p.m,
                    p.n,
                    p.k,
                    p.batches,
                    first.operation,
                    first.leading,
                    first.batch_stride,
                    aligned[0],
                    second.operation,
                    second.leading,
                    second.batch_stride,
                    aligned[1],
                    aligned[2],
                    epilogue,
                    p.dtype == DType::f32 && allow_tf32(),
                    p.wide_out};
  static Mutex& mutex = *new Mutex(LockOrder::libraries);
  static auto& plans = *new std::map<PlanKey, MatmulPlan>;
  // Held until the launch: the plan's bias pointer is set for this call below.
  std::lock_guard lock(mutex);
  auto place = plans.find(key);
  if (place == plans.end())
    place = plans.emplace(key, make_plan(state, p, first, second, epilogue, aligned)).first;
  const MatmulPlan& plan = place->second;

  const size_t bytes = first_bytes + second_bytes + bias_bytes + plan.workspace;
  char* work = given   ? static_cast<char*>(given)
               : bytes ? static_cast<char*>(args.workspace(bytes))
                       : nullptr;
  const auto copy_in = [&](const Matrix& m, Stored& stored, size_t taken) {
    const int64_t shape[3] = {p.batches, m.rows, m.columns};
    const int64_t from[3] = {m.batch_stride, m.row_stride, m.column_stride};
    const int64_t to[3] = {m.rows * m.columns, m.columns, 1};
    strided_copy(stream, 3, shape, p.dtype, m.data, from, work, to);
    stored.data = work;
    work += taken;
  };
  if (first.needs_copy) copy_in(p.b, first, first_bytes);
  if (second.needs_copy) copy_in(p.a, second, second_bytes);
  if (copies_bias || preset) {
    // preset: one row of out after the other is the bias, and the product is added to it (beta 1). Only linear has a
    // bias, and it has one matrix.
    const int64_t shape[2] = {preset ? p.m : 1, p.n}, from[2] = {0, p.bias_stride}, to[2] = {p.n, 1};
    strided_copy(stream, 2, shape, p.dtype, p.bias, from, preset ? p.out : work, to);
    if (copies_bias) {
      p.bias = work;
      work += bias_bytes;
    }
  }
  if (epilogue)
    check_blas(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias,
                                              sizeof(p.bias)),
               "cublasLtMatmulDescSetAttribute");
  const double one = 1, beta = preset ? 1 : 0;
  const float one_f = 1, zero_f = 0;
  const bool wide = p.dtype == DType::f64;
  check_blas(
      cublasLtMatmul(state.blas, plan.operation, wide ? static_cast<const void*>(&one) : &one_f, first.data,
                     plan.first, second.data, plan.second, wide ? static_cast<const void*>(&beta) : &zero_f,
                     p.out, plan.out, p.out, plan.out, &plan.algorithm, work, plan.workspace, stream),
      "cublasLtMatmul");
}

namespace {

/// One thread per element of the output, the sum in order. Sums wrap, so that signed and unsigned give the
/// same bits; products of bool are "and", sums "or".
template <class T, bool kBool>
__global__ void __launch_bounds__(128) integer_product_kernel(const Product p) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x;
  if (i >= p.batches * p.m * p.n) return;
  const int64_t batch = i / (p.m * p.n), place = i - batch * p.m * p.n, row = place / p.n,
                column = place - row * p.n;
  const T* a = static_cast<const T*>(p.a.data) + batch * p.a.batch_stride + row * p.a.row_stride;
  const T* b = static_cast<const T*>(p.b.data) + batch * p.b.batch_stride + column * p.b.column_stride;
  uint64_t sum = p.bias ? static_cast<uint64_t>(static_cast<const T*>(p.bias)[column * p.bias_stride]) : 0;
  for (int64_t k = 0; k < p.k; ++k)
    sum += static_cast<uint64_t>(a[k * p.a.column_stride]) * static_cast<uint64_t>(b[k * p.b.row_stride]);
  static_cast<T*>(p.out)[i] = kBool ? static_cast<T>(sum != 0) : static_cast<T>(sum);
}

void plain_product(const KernelArgs& args, const Product& p) {
  const auto blocks = static_cast<unsigned>((p.batches * p.m * p.n + 127) / 128);
  const cudaStream_t stream = stream_of(args);
  if (p.dtype == DType::boolean)
    integer_product_kernel<uint8_t, true><<<blocks, 128, 0, stream>>>(p);
  else if (bytes_of(p.dtype) == 1)
    integer_product_kernel<uint8_t, false><<<blocks, 128, 0, stream>>>(p);
  else if (bytes_of(p.dtype) == 2)
    integer_product_kernel<uint16_t, false><<<blocks, 128, 0, stream>>>(p);
  else if (bytes_of(p.dtype) == 4)
    integer_product_kernel<uint32_t, false><<<blocks, 128, 0, stream>>>(p);
  else
    integer_product_kernel<uint64_t, false><<<blocks, 128, 0, stream>>>(p);
  launched("integer_product_kernel");
}

class LibraryProduct final : public ProductImplementation {
 public:
  std::string name() const override { return "cuBLASLt"; }
  const char* can(const ProductProblem& p) const override {
    return is_floating(p.dtype) ? nullptr : "it takes floating types only.";
  }
  bool is_fixed() const override { return true; }
  void run(const ProductCall& call) const override {
    library_product(call.args, call.product, call.workspace);
  }
};

class IntegerProduct final : public ProductImplementation {
 public:
  std::string name() const override { return "integers"; }
  const char* can(const ProductProblem& p) const override {
    return is_floating(p.dtype) ? "it takes integers only." : nullptr;
  }
  bool is_fixed() const override { return true; }
  void run(const ProductCall& call) const override { plain_product(call.args, call.product); }
};

Chooser<ProductProblem, ProductCall>& chooser() {
  static const ProductImplementation* const rows[] = {
#define TD_ROW(implementation) &implementation(),
      TD_PRODUCT_IMPLEMENTATIONS(TD_ROW)
#undef TD_ROW
  };
  static auto& all = *new Chooser<ProductProblem, ProductCall>(rows);
  return all;
}

ProductProblem problem_of(const KernelArgs& args, const Product& p) {
  const DeviceState& state = state_of(args);
  return {state.index,
          state.properties.major,
          state.properties.multiProcessorCount,
          allow_tf32(),
          p.dtype,
          p.batches,
          p.m,
          p.n,
          p.k};
}

/// Inside a recording nothing can be timed: there the rule decides.
void compute(const ProductCall& call) {
  const MatmulChoice choice = matmul_choice();
  const ProductProblem& p = call.problem;
  const auto by_time = [&](const auto& list) -> const ProductImplementation& {
    if (is_recording(call.args)) return list.by_rule(ChoiceMode::heuristic, p);
    const std::string what = str("matmul ", name(p.dtype), p.dtype == DType::f32 && p.tf32 ? " as tf32" : "",
                                 " ", p.batches, "x", p.m, "x", p.k, " ", p.k, "x", p.n, "; ",
                                 state_of(call.args).properties.name, ", cuBLASLt ", cublasLtGetVersion());
    return list.by_time(p, what, choice.keep, [&](const ProductImplementation& row) {
      return device_seconds(call.args, [&] { row.run(call); });
    });
  };
  chooser().choose(choice.mode, p, by_time).run(call);
}

void product(const KernelArgs& args, const Product& p) {
  if (p.batches * p.m * p.n == 0) return;
  if (p.k == 0) {  // an empty sum: zeros, or the bias
    const int64_t shape[2] = {p.batches * p.m, p.n}, from[2] = {0, p.bias_stride}, to[2] = {p.n, 1};
    if (p.bias)
      strided_copy(stream_of(args), 2, shape, p.dtype, p.bias, from, p.out, to);
    else
      check(cudaMemsetAsync(p.out, 0, bytes_of(p.dtype) * static_cast<size_t>(p.batches * p.m * p.n),
                            stream_of(args)),
            "cudaMemsetAsync");
    return;
  }
  compute({args, problem_of(args, p), p});
}

Product matmul_product(const KernelArgs& args) {
  const Buffer &a = args.in[0], &b = args.in[1], &out = args.out[0];
  Product p{};
  const int r = a.rank;
  p.dtype = out.dtype;
  p.batches = r == 3 ? a.shape[0] : 1;
  p.m = a.shape[r - 2];
  p.k = a.shape[r - 1];
  p.n = b.shape[r - 1];
  p.a = {a.data, p.m, p.k, a.strides[r - 2], a.strides[r - 1], r == 3 ? a.strides[0] : 0};
  p.b = {b.data, p.k, p.n, b.strides[r - 2], b.strides[r - 1], r == 3 ? b.strides[0] : 0};
  p.out = out.data;
  return p;
}

/// b is the weight (n, k) transposed, by its strides.
Product linear_product(const KernelArgs& args) {
  const Buffer &x = args.in[0], &weight = args.in[1], &out = args.out[0];
  Product p{};
  p.dtype = out.dtype;
  p.batches = 1;
  p.m = x.shape[0];
  p.k = x.shape[1];
  p.n = weight.shape[0];
  p.a = {x.data, p.m, p.k, x.strides[0], x.strides[1], 0};
  p.b = {weight.data, p.k, p.n, weight.strides[1], weight.strides[0], 0};
  if (args.n_in == 3) {
    p.bias = args.in[2].data;
    p.bias_stride = args.in[2].strides[0];
  }
  p.out = out.data;
  return p;
}

template <Product (*product_of)(const KernelArgs&)>
void product_kernel(const KernelArgs& args) {
  product(args, product_of(args));
}

template <Product (*product_of)(const KernelArgs&)>
Candidates candidates(const KernelArgs& args) {
  if (!args.device) return {{}, "not run yet"};
  return chooser().report(matmul_choice().mode, problem_of(args, product_of(args)));
}

}  // namespace

void inner_product(const KernelArgs& args, const Product& p, void* workspace) {
  const ProductCall call{args, problem_of(args, p), p, workspace};
  const ChoiceMode mode =
      matmul_choice().mode == ChoiceMode::fixed ? ChoiceMode::fixed : ChoiceMode::heuristic;
  chooser()
      .choose(
          mode, call.problem,
          [&](const auto& list) -> const ProductImplementation& { return list.by_rule(mode, call.problem); })
      .run(call);
}

const ProductImplementation& cublas_product() {
  static constexpr LibraryProduct row;
  return row;
}

const ProductImplementation& integer_product() {
  static constexpr IntegerProduct row;
  return row;
}

void register_matmul_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  chooser();  // made at start, in no fork's way
  op_matmul().kernels[kCuda] = &product_kernel<matmul_product>;
  op_linear().kernels[kCuda] = &product_kernel<linear_product>;
  op_matmul().candidates[kCuda] = &candidates<matmul_product>;
  op_linear().candidates[kCuda] = &candidates<linear_product>;
}

}  // namespace tandem::cuda
