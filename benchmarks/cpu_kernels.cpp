// Micro-benchmark of the CPU kernels of matmul, linear, conv2d and max_pool. Every case is first checked
// against a float64 reference and for equal bits at 1, 2 and 3 threads (exit status 1 where one fails), then
// those worth a time are timed: median of several runs, GFLOP/s for products and GB/s for pooling.
//   cpu_kernels [--check | --odd] [--threads N] [WORD]   only check (only the odd shapes); threads for timing; only cases containing WORD
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tandem/core/backend.h"
#include "tandem/core/threads.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pool.h"

using namespace tandem;

#ifdef TD_STANDALONE
// Built from the kernel files alone, without the library: the op records are here.
#define TD_OP(name) \
  OpDef& tandem::op_##name() { \
    static OpDef op; \
    return op; \
  }
TD_OP(matmul)
TD_OP(linear)
TD_OP(conv)
TD_OP(conv_input_gradient)
TD_OP(conv_weight_gradient)
TD_OP(max_pool)
TD_OP(max_pool_scatter)
TD_OP(max_pool_gather)
namespace tandem::cpu::TD_ISA {
void register_matmul_kernels();
void register_conv_kernels();
void register_pool_kernels();
}  // namespace tandem::cpu::TD_ISA
static void start() {
  cpu::TD_ISA::register_matmul_kernels();
  cpu::TD_ISA::register_conv_kernels();
  cpu::TD_ISA::register_pool_kernels();
}
#else
static void start() { backend(DeviceKind::cpu); }
#endif

namespace {

using Shape = std::vector<int64_t>;

uint64_t random_state = 1;
double uniform() {  // in [-1, 1)
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<double>(random_state >> 11) * 0x1p-52 - 1.0;
}

int64_t count(const Shape& shape) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  return n;
}

/// A host array with strides. The values start 64-byte aligned.
struct Array {
  Shape shape, strides;
  DType dtype;
  std::vector<uint64_t> storage;

  Array(Shape s, DType d, bool fill = true) : shape(std::move(s)), dtype(d) {
    strides.assign(shape.size(), 1);
    for (int i = static_cast<int>(shape.size()) - 2; i >= 0; --i) strides[i] = strides[i + 1] * shape[i + 1];
    storage.assign(static_cast<size_t>(count(shape)) + 16, 0xfff8dead7fc1dead);  // NaNs of every width
    if (fill)
      for (int64_t i = 0; i < count(shape); ++i)
        set(i, is_floating(d) ? uniform() : std::floor(std::abs(uniform()) * 5));
  }
  char* data() {
    const uintptr_t p = reinterpret_cast<uintptr_t>(storage.data());
    return reinterpret_cast<char*>((p + 63) / 64 * 64);
  }
  void set(int64_t i, double value) {
    visit_dtype(dtype, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_class_v<T>)
        reinterpret_cast<T*>(data())[i] = T(static_cast<float>(value));
      else
        reinterpret_cast<T*>(data())[i] = static_cast<T>(value);
    });
  }
  double get(int64_t i) {
    return visit_dtype(
        dtype, [&](auto zero) { return static_cast<double>(reinterpret_cast<decltype(zero)*>(data())[i]); });
  }
  double at(std::initializer_list<int64_t> index) {
    int64_t p = 0;
    size_t axis = 0;
    for (int64_t i : index) p += i * strides[axis++];
    return get(p);
  }
  /// Swaps the last two axes: the same memory seen as the transposed matrix.
  void transpose() {
    const size_t r = shape.size();
    std::swap(shape[r - 1], shape[r - 2]);
    std::swap(strides[r - 1], strides[r - 2]);
  }
  size_t bytes() const { return static_cast<size_t>(count(shape)) * bytes_of(dtype); }
  Buffer buffer() { return {data(), shape.data(), strides.data(), static_cast<int>(shape.size()), dtype}; }
};

void call(const OpDef& op, std::vector<Array*> in, std::vector<Array*> out, const void* attrs) {
  std::vector<Buffer> ins, outs;
  for (Array* a : in) ins.push_back(a->buffer());
  for (Array* a : out) outs.push_back(a->buffer());
  KernelArgs args;
  args.in = ins.data();
  args.out = outs.data();
  args.n_in = static_cast<int>(ins.size());
  args.n_out = static_cast<int>(outs.size());
  args.attrs = attrs;
  args.device = &backend(DeviceKind::cpu).context({});
  op.kernels[static_cast<int>(DeviceKind::cpu)](args);
}

int failures = 0;
bool only_check = false, only_odd = false;
int timing_threads = threads();
std::string wanted;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Checks out[0] against `reference` (a sum of `terms` products an element), compares the bits of all outputs
/// across thread counts, and times the call where `work` (operations, or bytes moved) is not 0.
void run_case(const std::string& name, const OpDef& op, std::vector<Array*> in, std::vector<Array*> out,
              const void* attrs, int64_t terms, const std::function<void(std::vector<double>&)>& reference,
              double work, const char* unit) {
  if (!wanted.empty() && name.find(wanted) == std::string::npos) return;
  std::vector<double> expected(static_cast<size_t>(count(out[0]->shape)), 0.0);
  reference(expected);
  std::vector<std::string> first;
  double worst = 0;
  for (int t : {1, 2, 3}) {
    set_threads(t);
    for (Array* a : out) std::memset(a->data(), 0x7b, a->bytes());
    call(op, in, out, attrs);
    for (size_t i = 0; i < out.size(); ++i) {
      std::string bits(out[i]->data(), out[i]->bytes());
      if (t == 1)
        first.push_back(bits);
      else if (bits != first[i])
        ++failures, std::printf("FAIL %s: output %zu has other bits at %d threads\n", name.c_str(), i, t);
    }
  }
  const DType dtype = out[0]->dtype;
  const double epsilon = dtype == DType::f64    ? 0x1p-52
                         : dtype == DType::f32  ? 0x1p-23
                         : dtype == DType::bf16 ? 0x1p-8
                         : dtype == DType::f16  ? 0x1p-11
                                                : 0;
  // Rounding of the result, plus the errors of the sums in the accumulator's precision (far below the worst
  // case of `terms` half units, which grows with the square).
  const double sums = (dtype == DType::f64 ? 0x1p-52 : 0x1p-23) * (4 + static_cast<double>(terms));
  for (size_t i = 0; i < expected.size(); ++i) {
    const double got = out[0]->get(static_cast<int64_t>(i)), difference = std::abs(got - expected[i]);
    const double allowed = epsilon == 0 ? 0 : epsilon * std::abs(expected[i]) + sums;
    if (std::isnan(expected[i]) ? !std::isnan(got) : !(difference <= allowed)) {
      ++failures;
      std::printf("FAIL %s: element %zu is %.9g, expected %.9g\n", name.c_str(), i, got, expected[i]);
      break;
    }
    if (allowed > 0) worst = std::max(worst, difference / allowed);
  }
  if (only_check || work == 0) return;
  set_threads(timing_threads);
  std::vector<double> times;
  const double begin = seconds();
  while (times.size() < 5 || (seconds() - begin < 0.08 && times.size() < 2000)) {
    const double t = seconds();
    call(op, in, out, attrs);
    times.push_back(seconds() - t);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
  const double median = times[times.size() / 2], best = *std::min_element(times.begin(), times.end());
  std::printf("%-58s %10.1f us %10.1f best %8.1f %s  (error %.2f of allowed)\n", name.c_str(), median * 1e6,
              best * 1e6, work / median * 1e-9, unit, worst);
}

std::string text(const char* format, auto... values) {
  char buffer[200];
  std::snprintf(buffer, sizeof buffer, format, values...);
  return buffer;
}

void matmul_case(DType d, int64_t batch, int64_t m, int64_t n, int64_t k, bool a_t, bool b_t, bool timed) {
  Array a(a_t ? Shape{batch, k, m} : Shape{batch, m, k}, d),
      b(b_t ? Shape{batch, n, k} : Shape{batch, k, n}, d);
  if (a_t) a.transpose();
  if (b_t) b.transpose();
  Array c({batch, m, n}, d, false);
  run_case(
      text("matmul %s %ldx(%ldx%ldx%ld)%s%s", name(d), batch, m, k, n, a_t ? " a^T" : "", b_t ? " b^T" : ""),
      op_matmul(), {&a, &b}, {&c}, nullptr, k,
      [&](std::vector<double>& want) {
        if (k * batch * m * n > 300'000'000) {  // the reference would take longer than it is worth
          call(op_matmul(), {&a, &b}, {&c}, nullptr);
          for (size_t i = 0; i < want.size(); ++i) want[i] = c.get(static_cast<int64_t>(i));
          for (int64_t i = 0; i < m; i += m / 7)
            for (int64_t j = 0; j < n; j += n / 7) {
              double x = 0;
              for (int64_t p = 0; p < k; ++p) x += a.at({0, i, p}) * b.at({0, p, j});
              want[static_cast<size_t>(i * n + j)] = x;
            }
          return;
        }
        for (int64_t q = 0; q < batch; ++q)
          for (int64_t i = 0; i < m; ++i)
            for (int64_t p = 0; p < k; ++p) {
              const double x = a.at({q, i, p});
              for (int64_t j = 0; j < n; ++j)
                want[static_cast<size_t>((q * m + i) * n + j)] += x * b.at({q, p, j});
            }
      },
      timed ? 2.0 * batch * m * n * k : 0, "GFLOP/s");
}

void linear_case(DType d, int64_t m, int64_t k, int64_t n, bool timed) {
  Array x({m, k}, d), w({n, k}, d), bias({n}, d), y({m, n}, d, false);
  run_case(
      text("linear %s (%ld, %ld) -> %ld", name(d), m, k, n), op_linear(), {&x, &w, &bias}, {&y}, nullptr, k,
      [&](std::vector<double>& want) {
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t p = 0; p < k; ++p) sum += x.at({i, p}) * w.at({j, p});
            want[static_cast<size_t>(i * n + j)] = sum + bias.get(j);
          }
      },
      timed ? 2.0 * m * n * k : 0, "GFLOP/s");
}

struct ConvCase {
  int64_t n, c, h, w, o, kh, kw;
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};

/// Forward and both gradients of one convolution.
void conv_case(DType d, const ConvCase& s, bool timed) {
  const int64_t oh = (s.h + 2 * s.padding - s.dilation * (s.kh - 1) - 1) / s.stride + 1;
  const int64_t ow = (s.w + 2 * s.padding - s.dilation * (s.kw - 1) - 1) / s.stride + 1;
  const int64_t cg = s.c / s.groups, og = s.o / s.groups;
  Array x({s.n, s.c, s.h, s.w}, d), w({s.o, cg, s.kh, s.kw}, d), bias({s.o}, d);
  Array y({s.n, s.o, oh, ow}, d, false), g({s.n, s.o, oh, ow}, d);
  Array dx({s.n, s.c, s.h, s.w}, d, false), dw({s.o, cg, s.kh, s.kw}, d, false);
  // Calls f(index of y, of x, of w) for every product.
  const auto products = [&](auto&& f) {
    for (int64_t n = 0; n < s.n; ++n)
      for (int64_t o = 0; o < s.o; ++o)
        for (int64_t c = 0; c < cg; ++c)
          for (int64_t i = 0; i < oh; ++i)
            for (int64_t j = 0; j < ow; ++j)
              for (int64_t a = 0; a < s.kh; ++a)
                for (int64_t b = 0; b < s.kw; ++b) {
                  const int64_t h = i * s.stride + a * s.dilation - s.padding;
                  const int64_t v = j * s.stride + b * s.dilation - s.padding;
                  if (h < 0 || h >= s.h || v < 0 || v >= s.w) continue;
                  f(((n * s.o + o) * oh + i) * ow + j, ((n * s.c + o / og * cg + c) * s.h + h) * s.w + v,
                    ((o * cg + c) * s.kh + a) * s.kw + b);
                }
  };
  const auto values = [](Array& a) {
    std::vector<double> v(static_cast<size_t>(count(a.shape)));
    for (size_t i = 0; i < v.size(); ++i) v[i] = a.get(static_cast<int64_t>(i));
    return v;
  };
  const auto xv = values(x), wv = values(w), gv = values(g), bv = values(bias);
  const auto each = [](int64_t unused, int64_t v) { return Axes3{{unused, v, v}}; };
  ConvAttrs attrs{each(1, s.stride), each(0, s.padding), each(1, s.dilation), s.groups};
  std::string tail = text("%s (%ld,%ld,%ld,%ld)*(%ld,%ldx%ld)", name(d), s.n, s.c, s.h, s.w, s.o, s.kh, s.kw);
  if (s.stride > 1) tail += text(" s%ld", s.stride);
  if (s.padding > 0) tail += text(" p%ld", s.padding);
  if (s.dilation > 1) tail += text(" d%ld", s.dilation);
  if (s.groups > 1) tail += text(" g%ld", s.groups);
  const double work = timed ? 2.0 * s.n * s.o * cg * oh * ow * s.kh * s.kw : 0;
  run_case(
      "conv2d " + tail, op_conv(), {&x, &w, &bias}, {&y}, &attrs, cg * s.kh * s.kw,
      [&](std::vector<double>& want) {
        for (size_t i = 0; i < want.size(); ++i) want[i] = bv[i / static_cast<size_t>(oh * ow) % bv.size()];
        products([&](int64_t i, int64_t j, int64_t k) { want[i] += xv[j] * wv[k]; });
      },
      work, "GFLOP/s");
  attrs.size = {{1, s.h, s.w}};
  run_case(
      "conv_input_gradient " + tail, op_conv_input_gradient(), {&g, &w}, {&dx}, &attrs, og * s.kh * s.kw,
      [&](std::vector<double>& want) {
        products([&](int64_t i, int64_t j, int64_t k) { want[j] += gv[i] * wv[k]; });
      },
      work, "GFLOP/s");
  attrs.size = {};
  attrs.kernel = {{1, s.kh, s.kw}};
  run_case(
      "conv_weight_gradient " + tail, op_conv_weight_gradient(), {&g, &x}, {&dw}, &attrs, s.n * oh * ow,
      [&](std::vector<double>& want) {
        products([&](int64_t i, int64_t j, int64_t k) { want[k] += gv[i] * xv[j]; });
      },
      work, "GFLOP/s");
}

void pool_case(DType d, int64_t n, int64_t c, int64_t h, int64_t w, int64_t kernel, int64_t stride,
               int64_t padding, bool timed) {
  const int64_t oh = (h + 2 * padding - kernel) / stride + 1, ow = (w + 2 * padding - kernel) / stride + 1;
  PoolAttrs attrs{
      {{1, kernel, kernel}}, {{1, stride, stride}}, {{0, padding, padding}}, {{1, 1, 1}}, {{1, oh, ow}}};
  Array x({n, c, h, w}, d), y({n, c, oh, ow}, d, false), position({n, c, oh, ow}, DType::i32, false);
  Array g({n, c, oh, ow}, d), dx({n, c, h, w}, d, false), z({n, c, oh, ow}, d, false);
  for (int64_t i = 0; i < count(x.shape); ++i)  // many ties, some NaNs
    x.set(i, i % 97 == 13 ? std::nan("") : std::floor(x.get(i) * 4));
  std::vector<int64_t> winners(static_cast<size_t>(count(y.shape)));
  for (int64_t i = 0; i < count(y.shape); ++i) {
    const int64_t plane = i / (oh * ow), top = i / ow % oh * stride - padding,
                  left = i % ow * stride - padding;
    int64_t best = -1;
    for (int64_t a = std::max<int64_t>(top, 0); a < std::min(top + kernel, h); ++a)
      for (int64_t b = std::max<int64_t>(left, 0); b < std::min(left + kernel, w); ++b) {
        const double next = x.get((plane * h + a) * w + b),
                     winner = best < 0 ? 0 : x.get(plane * h * w + best);
        if (best < 0 || next > winner || (std::isnan(next) && !std::isnan(winner))) best = a * w + b;
      }
    winners[static_cast<size_t>(i)] = best;
  }
  const std::string tail =
      text("%s (%ld,%ld,%ld,%ld) k%ld s%ld p%ld", name(d), n, c, h, w, kernel, stride, padding);
  const double bytes = timed ? static_cast<double>(x.bytes() + y.bytes() + position.bytes()) : 0;
  run_case(
      "max_pool " + tail, op_max_pool(), {&x}, {&y, &position}, &attrs, 0,
      [&](std::vector<double>& want) {
        for (size_t i = 0; i < want.size(); ++i)
          want[i] = x.get(static_cast<int64_t>(i) / (oh * ow) * h * w + winners[i]);
      },
      bytes, "GB/s");
  for (size_t i = 0; i < winners.size(); ++i)
    position.set(static_cast<int64_t>(i), static_cast<double>(winners[i]));
  attrs.size = {{1, h, w}};
  run_case(
      "max_pool_scatter " + tail, op_max_pool_scatter(), {&g, &position}, {&dx}, &attrs, kernel,
      [&](std::vector<double>& want) {
        for (size_t i = 0; i < winners.size(); ++i)
          want[i / static_cast<size_t>(oh * ow) * static_cast<size_t>(h * w) +
               static_cast<size_t>(winners[i])] += g.get(static_cast<int64_t>(i));
      },
      bytes, "GB/s");
  run_case(
      "max_pool_gather " + tail, op_max_pool_gather(), {&x, &position}, {&z}, &attrs, 0,
      [&](std::vector<double>& want) {
        for (size_t i = 0; i < want.size(); ++i)
          want[i] = x.get(static_cast<int64_t>(i) / (oh * ow) * h * w + winners[i]);
      },
      0, "GB/s");
}

void check_odd_shapes() {
  const DType floats[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
  for (DType d : floats) {
    for (int64_t m : {0, 1, 3, 8, 17})
      for (int64_t n : {0, 1, 5, 12, 29})
        for (int64_t k : {0, 1, 7, 33})
          for (int layout = 0; layout < 4; ++layout)
            matmul_case(d, 1 + m % 3, m, n, k, layout & 1, layout & 2, false);
    matmul_case(d, 1, 70, 53, 1300, false, true, false);
    matmul_case(d, 1, 301, 203, 64, true, false, false);
    matmul_case(d, 1, 2, 700, 600, false, false, false);
    for (int layout = 0; layout < 4; ++layout) {
      matmul_case(d, 1, 1, 403, 310, layout & 1, layout & 2, false);
      matmul_case(d, 1, 3, 403, 310, layout & 1, layout & 2, false);
      matmul_case(d, 1, 405, 1, 310, layout & 1, layout & 2, false);
      matmul_case(d, 1, 405, 2, 309, layout & 1, layout & 2, false);
    }
    linear_case(d, 5, 19, 7, false);
    linear_case(d, 0, 19, 7, false);
    linear_case(d, 3, 0, 7, false);
    conv_case(d, {3, 4, 9, 11, 6, 3, 3}, false);
    conv_case(d, {2, 3, 7, 5, 17, 3, 2, 1, 1}, false);
    conv_case(d, {1, 6, 13, 10, 9, 3, 3, 2, 1}, false);
    conv_case(d, {2, 4, 12, 15, 6, 3, 5, 3, 2, 2}, false);
    conv_case(d, {2, 6, 8, 9, 4, 2, 2, 1, 0, 2, 2}, false);
    conv_case(d, {3, 5, 8, 8, 5, 3, 3, 1, 1, 1, 5}, false);
    conv_case(d, {2, 8, 6, 6, 12, 1, 1}, false);
    conv_case(d, {2, 8, 7, 7, 12, 1, 1, 2}, false);
    conv_case(d, {2, 8, 7, 7, 12, 1, 1, 1, 2}, false);
    conv_case(d, {2, 8, 5, 5, 12, 1, 1, 1, 0, 1, 2}, false);
    conv_case(d, {5, 20, 4, 3, 33, 3, 3, 1, 0}, false);
    conv_case(d, {5, 16, 5, 5, 16, 5, 5}, false);
    conv_case(d, {40, 2, 6, 6, 3, 3, 3, 2, 0}, false);
    conv_case(d, {3, 9, 8, 1, 9, 3, 1, 1, 1}, false);
    conv_case(d, {3, 9, 5, 2, 9, 3, 3, 1, 1}, false);
    conv_case(d, {0, 2, 6, 6, 3, 3, 3}, false);
    for (int64_t k : {2, 3})
      for (int64_t stride : {1, 2, 3})
        for (int64_t padding : {0, 1}) pool_case(d, 2, 3, 9, 11, k, stride, padding, false);
    pool_case(d, 3, 5, 28, 28, 2, 2, 0, false);
    pool_case(d, 3, 5, 11, 7, 2, 2, 0, false);
    pool_case(d, 0, 5, 28, 28, 2, 2, 0, false);
  }
  for (DType d : {DType::i8, DType::i32, DType::i64, DType::u8, DType::u16}) {
    matmul_case(d, 2, 5, 7, 3, false, true, false);
    linear_case(d, 4, 3, 6, false);
  }
}

void time_products() {
  for (int64_t s : {16, 64, 256, 512, 1024}) matmul_case(DType::f32, 1, s, s, s, false, false, true);
  matmul_case(DType::f32, 1, 1024, 1024, 1024, false, true, true);
  matmul_case(DType::f32, 1, 1024, 1024, 1024, true, false, true);
  matmul_case(DType::f64, 1, 512, 512, 512, false, false, true);
  matmul_case(DType::bf16, 1, 512, 512, 512, false, false, true);
  matmul_case(DType::f16, 1, 512, 512, 512, false, true, true);
  matmul_case(DType::f32, 1, 1, 1024, 1024, false, true, true);
  matmul_case(DType::f32, 1, 1, 1024, 1024, false, false, true);
  matmul_case(DType::f32, 1, 1024, 1, 1024, false, false, true);
  matmul_case(DType::f32, 64, 64, 64, 64, false, true, true);
  const int64_t layers[][2] = {{400, 120}, {120, 84}, {84, 10}};  // LeNet's, forward and both gradients
  for (const auto& layer : layers) {
    linear_case(DType::f32, 100, layer[0], layer[1], true);
    matmul_case(DType::f32, 1, 100, layer[0], layer[1], false, false, true);
    matmul_case(DType::f32, 1, layer[1], layer[0], 100, true, false, true);
  }
  linear_case(DType::f32, 128, 9216, 128, true);
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--check")
      only_check = true;
    else if (word == "--odd")
      only_check = only_odd = true;
    else if (word == "--threads" && i + 1 < argc)
      timing_threads = std::atoi(argv[++i]);
    else
      wanted = word;
  }
  start();
  check_odd_shapes();
  std::printf("odd shapes checked, %d failures; timing on %d threads\n", failures, timing_threads);
  if (only_odd) return failures ? 1 : 0;
  time_products();
  conv_case(DType::f32, {100, 1, 28, 28, 6, 5, 5, 1, 2}, true);
  conv_case(DType::f32, {100, 6, 14, 14, 16, 5, 5}, true);
  conv_case(DType::f32, {128, 1, 28, 28, 32, 3, 3}, true);
  conv_case(DType::f32, {128, 32, 26, 26, 64, 3, 3}, true);
  conv_case(DType::f32, {8, 64, 16, 16, 64, 3, 3, 1, 1}, true);
  conv_case(DType::f32, {8, 64, 16, 16, 128, 3, 3, 2, 1}, true);
  conv_case(DType::f32, {8, 256, 8, 8, 256, 3, 3, 1, 1}, true);
  conv_case(DType::f32, {8, 128, 16, 16, 128, 1, 1}, true);
  conv_case(DType::f32, {8, 64, 16, 16, 64, 3, 3, 1, 1, 1, 64}, true);
  conv_case(DType::bf16, {100, 6, 14, 14, 16, 5, 5}, true);
  pool_case(DType::f32, 100, 6, 28, 28, 2, 2, 0, true);
  pool_case(DType::f32, 100, 16, 10, 10, 2, 2, 0, true);
  pool_case(DType::f32, 128, 64, 24, 24, 2, 2, 0, true);
  std::printf("%s\n", failures ? "FAILED" : "all cases agree with their references");
  return failures ? 1 : 0;
}
