// An operation of your own, from outside the library, in one file: what it takes and gives (infer), its gradient, and
// a kernel for each device. Both engines, the tape and the optimisers take it like any other. Built against an installed
// Tandem; with a CUDA compiler the same file gives the CUDA kernel too (see CMakeLists.txt).
#include <tandem/tandem.h>

#include <cstdio>
#include <cstdlib>

namespace {

using namespace tandem;

/// soft_threshold(x) = sign(x) · max(|x| - limit, 0)
struct Threshold {
  double limit = 0.5;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("limit", &Threshold::limit));
  }
};

/// One element, for both kernels.
TD_HD float shrink(float x, float limit) { return x > limit ? x - limit : (x < -limit ? x + limit : 0.f); }

void on_cpu(const KernelArgs& args) {
  const float limit = static_cast<float>(args.attributes<Threshold>().limit);
  const float* x = args.in[0].as<const float>();
  float* y = args.out[0].as<float>();
  parallel_ranges(args.out[0].size(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = shrink(x[i], limit);
  });
}

#ifdef __CUDACC__
__global__ void shrink_all(const float* x, float* y, int64_t n, float limit) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = shrink(x[i], limit);
}
void on_cuda(const KernelArgs& args) {
  const int64_t n = args.out[0].size();
  if (n == 0) return;
  shrink_all<<<static_cast<unsigned>((n + 255) / 256), 256, 0,
               static_cast<cudaStream_t>(args.device->stream())>>>(
      args.in[0].as<const float>(), args.out[0].as<float>(), n,
      static_cast<float>(args.attributes<Threshold>().limit));
}
#endif

void infer(InferArgs& a) {  // refuses what the kernels and the gradient rule cannot work with
  a.attributes<Threshold>();
  TD_CHECK(a.in[0].dtype() == DType::f32, "soft_threshold: x must be f32; got ", describe(a.in[0]),
           ". cast() it first.");
  a.add(a.in[0].shape(), DType::f32);
}

Tensors gradient(const GradArgs& a) {  // made of public operations: second order comes with it
  const double limit = a.attributes.as<Threshold>().limit;
  return {where(greater(abs(a.in[0]), limit), a.grad[0], 0)};
}

const OpDef& op_soft_threshold() {
  static const OpDef& op = define(OpDef{.name = "soft_threshold",
                                        .inputs = {"x"},
                                        .infer = infer,
                                        .gradient = gradient,
                                        .saves_inputs = 1,  // bit 0: the rule reads in[0]
                                        .cost = Cost::cheap,
#ifdef __CUDACC__
                                        .kernels = {on_cpu, on_cuda}});
#else
                                        .kernels = {on_cpu}});
#endif
  return op;
}

Tensor soft_threshold(const Tensor& x, double limit) {
  return apply1(op_soft_threshold(), {x}, Threshold{limit});
}

void expect(const char* what, const Tensor& got, const std::vector<float>& want) {
  if (got.to_vector<float>() == want) return;
  std::fprintf(stderr, "%s: wrong result\n", what);
  std::exit(1);
}

void try_on(Device device) {
  Tensor x = from_vector<float>({-2, -0.25f, 0.25f, 3}, {4}, device).set_requires_grad();
  expect("forward", soft_threshold(x, 0.5).detach(), {-1.5f, 0, 0, 2.5f});

  sum(soft_threshold(x, 0.5)).backward();
  expect("gradient", x.grad(), {1, 0, 0, 1});

  Compiled twice = compile([](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{soft_threshold(soft_threshold(in[0], 0.5) * 2.0, 0.5)};
  });
  for (int call = 0; call < 3; ++call) expect("graph", twice({x.detach()})[0], {-2.5f, 0, 0, 4.5f});
  std::printf("soft_threshold works on %s, in both engines\n", to_string(device).c_str());
}

}  // namespace

int main() {
  try_on({});
#ifdef __CUDACC__
  if (find_backend(DeviceKind::cuda)) try_on({DeviceKind::cuda, 0});
#endif
}
