// Fourier transforms by cuFFT, and the frames of a signal. Plans are kept for good: recordings hold what they launch.
#include <cufft.h>

#include <map>
#include <mutex>
#include <tuple>

#include "tandem/backends/cuda/check.h"
#include "tandem/backends/cuda/device_state.h"
#include "tandem/backends/cuda/kernels.h"
#include "tandem/core/op.h"
#include "tandem/ops/fft.h"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;

void check_fft(cufftResult status, const char* call) {
  if (status != CUFFT_SUCCESS)
    fail(status == CUFFT_ALLOC_FAILED,
         str("cuda: ", call, " failed with status ", static_cast<int>(status), "."));
}

struct PlanEntry {
  cufftHandle handle = 0;
  size_t work_bytes = 0;
};

/// One lock for plans and their use: a plan's stream and work area are set before each launch.
Mutex& fft_mutex() {
  static Mutex& mutex = *new Mutex(LockOrder::libraries);
  return mutex;
}

/// fft_mutex() must be held. A plan takes `rows` transforms that follow each other without gaps. It owns no work
/// area: each call lends it a piece of the workspace. An entry whose making threw keeps handle 0 and is made again at
/// the next call.
PlanEntry& plan_of(int device, cufftType type, int64_t n, int64_t rows) {
  static auto& plans = *new std::map<std::tuple<int, int, int64_t, int64_t>, PlanEntry>;
  PlanEntry& entry = plans[{device, static_cast<int>(type), n, rows}];
  if (entry.handle == 0) {
    cufftHandle handle = 0;
    check_fft(cufftCreate(&handle), "cufftCreate");
    check_fft(cufftSetAutoAllocation(handle, 0), "cufftSetAutoAllocation");
    long long size = n;
    check_fft(
        cufftMakePlanMany64(handle, 1, &size, nullptr, 1, 0, nullptr, 1, 0, type, rows, &entry.work_bytes),
        "cufftMakePlanMany64");
    entry.handle = handle;
  }
  return entry;
}

template <class T>
__global__ void __launch_bounds__(kThreads) scale_kernel(int64_t size, T scale, T* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < size) out[i] *= scale;
}

/// Half spectra (rows, bins, 2) without the imaginary parts that must be zero.
/// Those are of bin 0 and, for even n, of the last bin: irfft does not read them, whatever they hold.
template <class T>
__global__ void __launch_bounds__(kThreads)
    hermitian_kernel(int64_t size, int64_t bins, bool even, const T* __restrict__ in, T* __restrict__ out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  const int64_t bin = i / 2 % bins;
  out[i] = i % 2 && (bin == 0 || (even && bin == bins - 1)) ? T(0) : in[i];
}

unsigned blocks(int64_t count) { return static_cast<unsigned>((count + kThreads - 1) / kThreads); }

template <class F>
void by_type(DType dtype, F&& f) {
  if (dtype == DType::f32)
    f(float{});
  else
    f(double{});
}

/// Runs a plan; `copied` elements of the workspace stand before cuFFT's own part.
template <class T, class F>
void run_plan(const KernelArgs& args, cufftType type, int64_t n, int64_t rows, int64_t copied, double scale,
              F&& execute) {
  const std::lock_guard lock(fft_mutex());
  const PlanEntry& plan = plan_of(state_of(args).index, type, n, rows);
  const size_t first = (static_cast<size_t>(copied) * sizeof(T) + 255) / 256 * 256;
  // One byte more: never a request for none, where a plan needs no work area.
  char* memory = static_cast<char*>(args.workspace(first + plan.work_bytes + 1));
  check_fft(cufftSetStream(plan.handle, stream_of(args)), "cufftSetStream");
  check_fft(cufftSetWorkArea(plan.handle, memory + first), "cufftSetWorkArea");
  check_fft(execute(plan.handle, reinterpret_cast<T*>(memory)), "cufftExec");
  // cuFFT does not scale. The factor goes over the result in the same queue, one rounding per element.
  if (scale != 1) {
    const int64_t size = args.out[0].size();
    scale_kernel<<<blocks(size), kThreads, 0, stream_of(args)>>>(size, static_cast<T>(scale),
                                                                 args.out[0].as<T>());
    launched("scale_kernel");
  }
}

/// cuFFT reads whole complex numbers: an input that begins between two of them (part of a tensor) is copied first.
template <class T>
struct AlignedInput {
  explicit AlignedInput(const KernelArgs& args)
      : args(args),
        copied(reinterpret_cast<uintptr_t>(args.in[0].data) % (2 * sizeof(T)) ? args.in[0].size() : 0) {}
  T* in(T* workspace) const {
    if (!copied) return args.in[0].as<T>();
    check(cudaMemcpyAsync(workspace, args.in[0].data, static_cast<size_t>(copied) * sizeof(T),
                          cudaMemcpyDeviceToDevice, stream_of(args)),
          "cudaMemcpyAsync within the device");
    return workspace;
  }
  const KernelArgs& args;
  int64_t copied;
};

void fft(const KernelArgs& args) {
  const auto& a = args.attributes<FftAttrs>();
  if (args.out[0].size() == 0) return;
  const int64_t rows = args.out[0].size() / (2 * a.n);
  const int direction = a.inverse ? CUFFT_INVERSE : CUFFT_FORWARD;
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr bool kSingle = std::is_same_v<T, float>;
    const AlignedInput<T> input(args);
    run_plan<T>(args, kSingle ? CUFFT_C2C : CUFFT_Z2Z, a.n, rows, input.copied, a.scale,
                [&](cufftHandle plan, T* workspace) {
                  T* in = input.in(workspace);
                  if constexpr (kSingle)
                    return cufftExecC2C(plan, reinterpret_cast<cufftComplex*>(in),
                                        args.out[0].as<cufftComplex>(), direction);
                  else
                    return cufftExecZ2Z(plan, reinterpret_cast<cufftDoubleComplex*>(in),
                                        args.out[0].as<cufftDoubleComplex>(), direction);
                });
  });
}

void rfft(const KernelArgs& args) {
  const auto& a = args.attributes<FftAttrs>();
  if (args.out[0].size() == 0) return;
  const int64_t rows = args.out[0].size() / (2 * (a.n / 2 + 1));
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr bool kSingle = std::is_same_v<T, float>;
    const AlignedInput<T> input(args);
    run_plan<T>(args, kSingle ? CUFFT_R2C : CUFFT_D2Z, a.n, rows, input.copied, a.scale,
                [&](cufftHandle plan, T* workspace) {
                  T* in = input.in(workspace);
                  if constexpr (kSingle)
                    return cufftExecR2C(plan, in, args.out[0].as<cufftComplex>());
                  else
                    return cufftExecD2Z(plan, in, args.out[0].as<cufftDoubleComplex>());
                });
  });
}

/// cuFFT writes over the input of this one: it gets a copy.
void irfft(const KernelArgs& args) {
  const auto& a = args.attributes<FftAttrs>();
  if (args.out[0].size() == 0) return;
  const int64_t rows = args.out[0].size() / a.n, bins = a.n / 2 + 1, size = rows * bins * 2;
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr bool kSingle = std::is_same_v<T, float>;
    run_plan<T>(
        args, kSingle ? CUFFT_C2R : CUFFT_Z2D, a.n, rows, size, a.scale, [&](cufftHandle plan, T* copy) {
          hermitian_kernel<<<blocks(size), kThreads, 0, stream_of(args)>>>(size, bins, a.n % 2 == 0,
                                                                           args.in[0].as<T>(), copy);
          launched("hermitian_kernel");
          if constexpr (kSingle)
            return cufftExecC2R(plan, reinterpret_cast<cufftComplex*>(copy), args.out[0].as<cufftReal>());
          else
            return cufftExecZ2D(plan, reinterpret_cast<cufftDoubleComplex*>(copy),
                                args.out[0].as<cufftDoubleReal>());
        });
  });
}

/// One thread per element of out (row, frame, place in the frame).
template <class T>
__global__ void __launch_bounds__(kThreads)
    frames_kernel(int64_t size, const FrameAttrs f, const T* __restrict__ in, T* __restrict__ out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  const int64_t frame = i / f.size, row = frame / f.frames;
  out[i] = in[row * f.time + f.source(frame % f.frames * f.hop + i % f.size)];
}

/// One thread per place of the signal, which adds up what the frames hold for it in the order of
/// FrameAttrs::gathered: the order of the CPU, and no atomics.
template <class T>
__global__ void __launch_bounds__(kThreads)
    overlap_add_kernel(int64_t size, const FrameAttrs f, const T* __restrict__ in, T* __restrict__ out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < size) out[i] = f.gathered(in + i / f.time * f.frames * f.size, i % f.time);
}

void frames(const KernelArgs& args) {
  const int64_t size = args.out[0].size();
  if (size == 0) return;
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    frames_kernel<T><<<blocks(size), kThreads, 0, stream_of(args)>>>(size, args.attributes<FrameAttrs>(),
                                                                     args.in[0].as<T>(), args.out[0].as<T>());
  });
  launched("frames_kernel");
}

void overlap_add(const KernelArgs& args) {
  const int64_t size = args.out[0].size();
  if (size == 0) return;
  by_type(args.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    overlap_add_kernel<T><<<blocks(size), kThreads, 0, stream_of(args)>>>(
        size, args.attributes<FrameAttrs>(), args.in[0].as<T>(), args.out[0].as<T>());
  });
  launched("overlap_add_kernel");
}

}  // namespace

void register_fft_kernels() {
  constexpr int kCuda = static_cast<int>(DeviceKind::cuda);
  op_fft().kernels[kCuda] = &fft;
  op_rfft().kernels[kCuda] = &rfft;
  op_irfft().kernels[kCuda] = &irfft;
  op_frames().kernels[kCuda] = &frames;
  op_overlap_add().kernels[kCuda] = &overlap_add;
}

}  // namespace tandem::cuda
