// Factorisations by cuSOLVER, one matrix of a batch after the other. Its matrices are column-major: our row-major memory is
// the transposed matrix to it, which each kernel below either makes use of or undoes. The status of every matrix is read
// back, so these ops wait for the device (OpDef::waits).
#include <cublas_v2.h>
#include <cusolverDn.h>

#include <map>
#include <mutex>
#include <vector>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/core/op.h"
#include "tandem/ops/linalg.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

void check_solver(cusolverStatus_t status, const char* call) {
  if (status != CUSOLVER_STATUS_SUCCESS)
    fail(status == CUSOLVER_STATUS_ALLOC_FAILED,
         str("cuda: ", call, " failed with status ", static_cast<int>(status), "."));
}
void check_blas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(status == CUBLAS_STATUS_ALLOC_FAILED,
         str("cuda: ", call, " failed: ", cublasGetStatusString(status), "."));
}

/// The libraries' handles of a device, made at first use and held under a lock for the length of a call.
struct Libraries {
  cusolverDnHandle_t solver = nullptr;
  cublasHandle_t blas = nullptr;
  Mutex mutex{LockOrder::libraries};
};
Libraries& libraries_of(DeviceState& state) {
  static Mutex& mutex = *new Mutex(LockOrder::libraries);
  static auto& all = *new std::map<int, Libraries>;  // never taken down: the driver may be gone by then
  const std::lock_guard lock(mutex);
  Libraries& found = all[state.index];
  if (!found.solver) {
    check_solver(cusolverDnCreate(&found.solver), "cusolverDnCreate");
    check_blas(cublasCreate(&found.blas), "cublasCreate");
    // f32 stays f32 here, whatever set_tf32 says: errors of a solve grow with the condition of the matrix.
    check_blas(cublasSetMathMode(found.blas, CUBLAS_PEDANTIC_MATH), "cublasSetMathMode");
  }
  return found;
}

/// One call's handles, on its stream.
struct Session {
  const KernelArgs& args;
  cudaStream_t stream;
  Libraries& libraries;
  std::lock_guard<Mutex> lock;
  explicit Session(const KernelArgs& a)
      : args(a), stream(stream_of(a)), libraries(libraries_of(state_of(a))), lock(libraries.mutex) {
    check_solver(cusolverDnSetStream(libraries.solver, stream), "cusolverDnSetStream");
    check_blas(cublasSetStream(libraries.blas, stream), "cublasSetStream");
  }
  cusolverDnHandle_t solver() const { return libraries.solver; }
  std::vector<int> read(const int* status, int64_t count) const {
    std::vector<int> host(static_cast<size_t>(count));
    if (count)
      check(cudaMemcpyAsync(host.data(), status, host.size() * sizeof(int), cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync to host");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return host;
  }
};

/// Cuts one workspace into aligned pieces: first ask for the sizes, then take them in the same order.
class Pieces {
 public:
  template <class T>
  size_t add(int64_t count) {
    const size_t at = bytes_;
    bytes_ += (static_cast<size_t>(count) * sizeof(T) + 255) / 256 * 256;
    return at;
  }
  void allocate(const KernelArgs& args) { data_ = static_cast<char*>(args.workspace(bytes_ ? bytes_ : 1)); }
  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(data_ + offset);
  }

 private:
  size_t bytes_ = 0;
  char* data_ = nullptr;
};

struct Shape {
  int64_t batch = 1, m, n;
  explicit Shape(const Buffer& a) : m(a.shape[a.rank - 2]), n(a.shape[a.rank - 1]) {
    for (int i = 0; i < a.rank - 2; ++i) batch *= a.shape[i];
    TD_CHECK(m < (int64_t{1} << 31) && n < (int64_t{1} << 31), "cuda: a matrix side must be below 2^31; got ",
             m, " and ", n, ".");
  }
};

template <class F>
void by_type(DType dtype, F&& f) {
  if (dtype == DType::f32)
    f(float{});
  else
    f(double{});
}

unsigned blocks(int64_t count) { return static_cast<unsigned>((count + kThreads - 1) / kThreads); }

template <class T>
void copy(T* to, const T* from, int64_t count, cudaStream_t stream) {
  if (count)
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(count) * sizeof(T), cudaMemcpyDeviceToDevice, stream),
          "cudaMemcpyAsync within the device");
}

/// to (columns, rows) = from (rows, columns) transposed, both row-major.
template <class T>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(int64_t rows, int64_t columns, const T* __restrict__ from, T* __restrict__ to) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < rows * columns) to[i] = from[i % rows * columns + i / rows];
}
template <class T>
void transpose(const T* from, int64_t rows, int64_t columns, T* to, cudaStream_t stream) {
  if (rows * columns == 0) return;
  transpose_kernel<<<blocks(rows * columns), kThreads, 0, stream>>>(rows, columns, from, to);
  launched("transpose_kernel");
}

/// Zeroes what lies above (or below) the diagonal of row-major matrices (rows, columns).
template <class T>
__global__ void __launch_bounds__(kThreads)
    clear_kernel(int64_t size, int64_t rows, int64_t columns, bool above, T* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  const int64_t column = i % columns, row = i / columns % rows;
  if (above ? column > row : column < row) out[i] = T(0);
}

/// Identity matrices (n, n).
template <class T>
__global__ void __launch_bounds__(kThreads) identity_kernel(int64_t size, int64_t n, T* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < size) out[i] = i % n == i / n % n ? T(1) : T(0);
}

/// One thread per matrix: determinant or its sign and logarithm from the factors and the pivots (from 1).
/// A matrix and its transposed have one determinant. Each pivot that is not its own row is one exchange, which turns
/// the sign. In f64, in the order of the diagonal; n = 0 gives 1, or sign 1 and logarithm 0.
template <class T>
__global__ void __launch_bounds__(kThreads)
    determinant_kernel(int64_t batch, int64_t n, const T* lu, const int* pivots, T* det, T* sign_out,
                       T* log_out) {
  const int64_t b = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (b >= batch) return;
  double sign = 1, product = 1, logarithm = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double x = static_cast<double>(lu[(b * n + i) * n + i]);
    if (pivots[b * n + i] != i + 1) {
      sign = -sign;
      product = -product;
    }
    product *= x;
    sign = x == 0 ? 0 : x < 0 ? -sign : sign;
    logarithm += ::log(fabs(x));
  }
  if (det) {
    det[b] = static_cast<T>(product);
  } else {
    sign_out[b] = static_cast<T>(sign);
    log_out[b] = static_cast<T>(logarithm);
  }
}

/// status[i] = kNotFinite where matrix i (rows, columns) has an element that is not finite, else 0; of `lower`
/// only what the diagonal and the triangle below it hold. One block per matrix.
template <class T>
__global__ void __launch_bounds__(kThreads)
    finite_kernel(int64_t rows, int64_t columns, bool lower, const T* __restrict__ a, int* status) {
  const T* matrix = a + static_cast<int64_t>(blockIdx.x) * rows * columns;
  int bad = 0;
  for (int64_t i = threadIdx.x; i < rows * columns; i += kThreads)
    if (!(lower && i % columns > i / columns) && !isfinite(matrix[i])) bad = 1;
  bad = __syncthreads_or(bad);
  if (threadIdx.x == 0) status[blockIdx.x] = bad ? kNotFinite : 0;
}

/// Refuses values that are not finite: cuSOLVER's iterations over them may never end.
template <class T>
void check_finite(const char* op, const Session& session, const Shape& s, bool lower, const T* a,
                  int* status) {
  finite_kernel<<<static_cast<unsigned>(s.batch), kThreads, 0, session.stream>>>(s.m, s.n, lower, a, status);
  launched("finite_kernel");
  check_converged(op, session.read(status, s.batch));
}

// cuSOLVER's names by element type.
#define TD_BY_TYPE(name, solver_name) \
  template <class... A> \
  auto name(float, A... a) { \
    return cusolverDnS##solver_name(a...); \
  } \
  template <class... A> \
  auto name(double, A... a) { \
    return cusolverDnD##solver_name(a...); \
  }
TD_BY_TYPE(potrf_size, potrf_bufferSize)
TD_BY_TYPE(potrf, potrf)
TD_BY_TYPE(getrf_size, getrf_bufferSize)
TD_BY_TYPE(getrf, getrf)
TD_BY_TYPE(getrs, getrs)
TD_BY_TYPE(geqrf_size, geqrf_bufferSize)
TD_BY_TYPE(geqrf, geqrf)
TD_BY_TYPE(orgqr_size, orgqr_bufferSize)
TD_BY_TYPE(orgqr, orgqr)
TD_BY_TYPE(gesvdj_size, gesvdj_bufferSize)
TD_BY_TYPE(gesvdj, gesvdj)
TD_BY_TYPE(syevd_size, syevd_bufferSize)
TD_BY_TYPE(syevd, syevd)
#undef TD_BY_TYPE

void cholesky(const KernelArgs& args) {
  const Shape s(args.in[0]);
  const int n = static_cast<int>(s.n);
  if (args.out[0].size() == 0) return;
  Session session(args);
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = args.out[0].as<T>();
    copy(out, args.in[0].as<T>(), args.out[0].size(), session.stream);
    int work_size = 0;  // our lower triangle is the upper one of the column-major matrix
    check_solver(potrf_size(zero, session.solver(), CUBLAS_FILL_MODE_UPPER, n, out, n, &work_size),
                 "potrf_bufferSize");
    Pieces pieces;
    const size_t work = pieces.add<T>(work_size), status = pieces.add<int>(s.batch);
    pieces.allocate(args);
    for (int64_t i = 0; i < s.batch; ++i)
      check_solver(potrf(zero, session.solver(), CUBLAS_FILL_MODE_UPPER, n, out + i * n * n, n,
                         pieces.at<T>(work), work_size, pieces.at<int>(status) + i),
                   "potrf");
    clear_kernel<<<blocks(args.out[0].size()), kThreads, 0, session.stream>>>(args.out[0].size(), s.n, s.n,
                                                                              true, out);
    launched("clear_kernel");
    check_not_positive(session.read(pieces.at<int>(status), s.batch));
  });
}

/// LU factors of the transposed matrices in device memory, with pivots and status.
template <class T>
struct Factors {
  Pieces pieces;
  size_t lu, pivots, status, work, extra;
  int work_size = 0;

  /// One factorisation per matrix, in place in a copy. status has one place more than the batch: getrs writes there.
  Factors(const Session& session, const Shape& s, const Buffer& a, int64_t extra_elements) {
    const int n = static_cast<int>(s.n);
    check_solver(getrf_size(T{}, session.solver(), n, n, a.as<T>(), n, &work_size), "getrf_bufferSize");
    lu = pieces.add<T>(s.batch * s.n * s.n);
    pivots = pieces.add<int>(s.batch * s.n);
    status = pieces.add<int>(s.batch + 1);
    work = pieces.add<T>(work_size);
    extra = pieces.add<T>(extra_elements);
    pieces.allocate(session.args);
    copy(pieces.at<T>(lu), a.as<T>(), s.batch * s.n * s.n, session.stream);
    for (int64_t i = 0; i < s.batch; ++i)
      check_solver(getrf(T{}, session.solver(), n, n, pieces.at<T>(lu) + i * n * n, n, pieces.at<T>(work),
                         pieces.at<int>(pivots) + i * n, pieces.at<int>(status) + i),
                   "getrf");
  }
  /// Solves with the factors of element i, in place, for column-major right sides.
  void solve(const Session& session, const Shape& s, int64_t i, cublasOperation_t op, int64_t columns, T* b) {
    const int n = static_cast<int>(s.n);
    check_solver(getrs(T{}, session.solver(), op, n, static_cast<int>(columns), pieces.at<T>(lu) + i * n * n,
                       n, pieces.at<int>(pivots) + i * n, b, n, pieces.at<int>(status) + s.batch),
                 "getrs");
  }
};

void solve(const KernelArgs& args) {
  const Shape s(args.in[0]);
  const int64_t columns = args.in[1].shape[args.in[1].rank - 1];
  if (args.out[0].size() == 0) return;
  Session session(args);
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    Factors<T> f(session, s, args.in[0], s.n * columns);
    check_singular("solve", session.read(f.pieces.template at<int>(f.status), s.batch));
    T* side = f.pieces.template at<T>(f.extra);
    for (int64_t i = 0; i < s.batch; ++i) {
      // The factors are of the transposed matrix: OP_T solves with our own.
      transpose(args.in[1].as<T>() + i * s.n * columns, s.n, columns, side, session.stream);
      f.solve(session, s, i, CUBLAS_OP_T, columns, side);
      transpose(side, columns, s.n, args.out[0].as<T>() + i * s.n * columns, session.stream);
    }
  });
}

void inverse(const KernelArgs& args) {
  const Shape s(args.in[0]);
  const int64_t size = args.out[0].size();
  if (size == 0) return;
  Session session(args);
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    Factors<T> f(session, s, args.in[0], 0);
    check_singular("inverse", session.read(f.pieces.template at<int>(f.status), s.batch));
    T* out = args.out[0].as<T>();
    identity_kernel<<<blocks(size), kThreads, 0, session.stream>>>(size, s.n, out);
    launched("identity_kernel");
    // The inverse of the transposed matrix, column by column: row-major it is the inverse itself.
    for (int64_t i = 0; i < s.batch; ++i) f.solve(session, s, i, CUBLAS_OP_N, s.n, out + i * s.n * s.n);
  });
}

template <bool kLog>
void determinant(const KernelArgs& args) {
  const Shape s(args.in[0]);
  if (s.batch == 0) return;
  Session session(args);
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto finish = [&](const T* lu, const int* pivots) {
      determinant_kernel<T><<<blocks(s.batch), kThreads, 0, session.stream>>>(
          s.batch, s.n, lu, pivots, kLog ? nullptr : args.out[0].as<T>(), args.out[0].as<T>(),
          kLog ? args.out[1].as<T>() : nullptr);
      launched("determinant_kernel");
    };
    // A singular matrix is no error here: its factors have a zero on the diagonal, and the determinant is 0.
    if (s.n == 0) return finish(nullptr, nullptr);
    Factors<T> f(session, s, args.in[0], 0);
    finish(f.pieces.template at<T>(f.lu), f.pieces.template at<int>(f.pivots));
  });
}

void triangular_solve(const KernelArgs& args) {
  const Shape s(args.in[0]);
  const auto& attrs = args.attributes<TriangularSolveAttrs>();
  const int columns = static_cast<int>(args.in[1].shape[args.in[1].rank - 1]), n = static_cast<int>(s.n);
  if (args.out[0].size() == 0) return;
  Session session(args);
  // Transposed, A · X = B reads Xᵀ · Aᵀ = Bᵀ, and the other triangle of the matrix is filled.
  const cublasFillMode_t fill = attrs.upper ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
  const cublasDiagType_t diagonal = attrs.unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = args.out[0].as<T>();
    copy(out, args.in[1].as<T>(), args.out[0].size(), session.stream);
    const T one = 1;
    for (int64_t i = 0; i < s.batch; ++i) {
      const T* a = args.in[0].as<T>() + i * n * n;
      T* x = out + i * n * columns;
      if constexpr (std::is_same_v<T, float>)
        check_blas(cublasStrsm(session.libraries.blas, CUBLAS_SIDE_RIGHT, fill, CUBLAS_OP_N, diagonal,
                               columns, n, &one, a, n, x, columns),
                   "cublasStrsm");
      else
        check_blas(cublasDtrsm(session.libraries.blas, CUBLAS_SIDE_RIGHT, fill, CUBLAS_OP_N, diagonal,
                               columns, n, &one, a, n, x, columns),
                   "cublasDtrsm");
    }
  });
}

void qr(const KernelArgs& args) {
  const Shape s(args.in[0]);
  const int m = static_cast<int>(s.m), n = static_cast<int>(s.n), k = m < n ? m : n;
  if (args.in[0].size() == 0) return;  // then q and r are empty too, or q has no columns
  Session session(args);
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    int factor_size = 0, build_size = 0;
    T* none = args.out[0].as<T>();
    check_solver(geqrf_size(zero, session.solver(), m, n, none, m, &factor_size), "geqrf_bufferSize");
    check_solver(orgqr_size(zero, session.solver(), m, k, k, none, m, none, &build_size), "orgqr_bufferSize");
    const int work_size = factor_size > build_size ? factor_size : build_size;
    Pieces pieces;
    const size_t matrix = pieces.add<T>(s.m * s.n), rows = pieces.add<T>(s.m * s.n), tau = pieces.add<T>(k),
                 work = pieces.add<T>(work_size), status = pieces.add<int>(1);
    pieces.allocate(args);
    T *a = pieces.at<T>(matrix), *r = pieces.at<T>(rows);
    for (int64_t i = 0; i < s.batch; ++i) {
      transpose(args.in[0].as<T>() + i * s.m * s.n, s.m, s.n, a, session.stream);
      check_solver(geqrf(zero, session.solver(), m, n, a, m, pieces.at<T>(tau), pieces.at<T>(work), work_size,
                         pieces.at<int>(status)),
                   "geqrf");
      // geqrf leaves R in the upper triangle and the reflections below it. orgqr then writes Q over both, so that R
      // is taken out first: the first k rows, less what lies below the diagonal.
      transpose(a, s.n, s.m, r, session.stream);
      clear_kernel<<<blocks(s.m * s.n), kThreads, 0, session.stream>>>(s.m * s.n, s.m, s.n, false, r);
      launched("clear_kernel");
      copy(args.out[1].as<T>() + i * k * s.n, r, k * s.n, session.stream);
      check_solver(orgqr(zero, session.solver(), m, k, k, a, m, pieces.at<T>(tau), pieces.at<T>(work),
                         work_size, pieces.at<int>(status)),
                   "orgqr");
      transpose(a, k, s.m, args.out[0].as<T>() + i * s.m * k, session.stream);
    }
  });
}

/// gesvdj's settings, taken down at the end.
struct JacobiSettings {
  gesvdjInfo_t info = nullptr;
  JacobiSettings() { check_solver(cusolverDnCreateGesvdjInfo(&info), "cusolverDnCreateGesvdjInfo"); }
  ~JacobiSettings() { (void)cusolverDnDestroyGesvdjInfo(info); }
  JacobiSettings(const JacobiSettings&) = delete;
  JacobiSettings& operator=(const JacobiSettings&) = delete;
};

void svd(const KernelArgs& args) {
  const Shape s(args.in[0]);
  const int m = static_cast<int>(s.m), n = static_cast<int>(s.n), k = m < n ? m : n;
  if (args.in[0].size() == 0) return;
  Session session(args);
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    // To cuSOLVER the matrix is (n, m), Aᵀ = V · S · Uᵀ: its left vectors are ours on the right.
    // V (n, k) column-major is our vh (k, n) as it lies; U (m, k) comes transposed and is turned round.
    const JacobiSettings settings;
    int work_size = 0;
    T* none = args.out[0].as<T>();
    check_solver(gesvdj_size(zero, session.solver(), CUSOLVER_EIG_MODE_VECTOR, 1, n, m, none, n, none, none,
                             n, none, m, &work_size, settings.info),
                 "gesvdj_bufferSize");
    Pieces pieces;
    const size_t matrix = pieces.add<T>(s.m * s.n), left = pieces.add<T>(s.m * k),
                 work = pieces.add<T>(work_size), status = pieces.add<int>(s.batch);
    pieces.allocate(args);
    check_finite("svd", session, s, false, args.in[0].as<T>(), pieces.at<int>(status));
    for (int64_t i = 0; i < s.batch; ++i) {
      copy(pieces.at<T>(matrix), args.in[0].as<T>() + i * s.m * s.n, s.m * s.n, session.stream);
      check_solver(
          gesvdj(zero, session.solver(), CUSOLVER_EIG_MODE_VECTOR, 1, n, m, pieces.at<T>(matrix), n,
                 args.out[1].as<T>() + i * k, args.out[2].as<T>() + i * k * s.n, n, pieces.at<T>(left), m,
                 pieces.at<T>(work), work_size, pieces.at<int>(status) + i, settings.info),
          "gesvdj");
      transpose(pieces.at<T>(left), k, s.m, args.out[0].as<T>() + i * s.m * k, session.stream);
    }
    check_converged("svd", session.read(pieces.at<int>(status), s.batch));
  });
}

void eigh(const KernelArgs& args) {
  const Shape s(args.in[0]);
  const int n = static_cast<int>(s.n);
  if (args.in[0].size() == 0) return;
  Session session(args);
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    int work_size = 0;  // our lower triangle is the upper one of the column-major matrix
    T* none = args.out[1].as<T>();
    check_solver(syevd_size(zero, session.solver(), CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, n, none,
                            n, none, &work_size),
                 "syevd_bufferSize");
    Pieces pieces;
    const size_t matrix = pieces.add<T>(s.n * s.n), work = pieces.add<T>(work_size),
                 status = pieces.add<int>(s.batch);
    pieces.allocate(args);
    check_finite("eigh", session, s, true, args.in[0].as<T>(), pieces.at<int>(status));
    for (int64_t i = 0; i < s.batch; ++i) {
      T* a = pieces.at<T>(matrix);
      copy(a, args.in[0].as<T>() + i * n * n, s.n * s.n, session.stream);
      check_solver(
          syevd(zero, session.solver(), CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, n, a, n,
                args.out[0].as<T>() + i * n, pieces.at<T>(work), work_size, pieces.at<int>(status) + i),
          "syevd");
      // Eigenvectors are columns: column-major they lie as rows.
      transpose(a, s.n, s.n, args.out[1].as<T>() + i * n * n, session.stream);
    }
    check_converged("eigh", session.read(pieces.at<int>(status), s.batch));
  });
}

}  // namespace

void register_linalg_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_cholesky().kernels[kCuda] = &cholesky;
  op_solve().kernels[kCuda] = &solve;
  op_triangular_solve().kernels[kCuda] = &triangular_solve;
  op_inverse().kernels[kCuda] = &inverse;
  op_det().kernels[kCuda] = &determinant<false>;
  op_slogdet().kernels[kCuda] = &determinant<true>;
  op_qr().kernels[kCuda] = &qr;
  op_svd().kernels[kCuda] = &svd;
  op_eigh().kernels[kCuda] = &eigh;
}

}  // namespace tandem::cuda
