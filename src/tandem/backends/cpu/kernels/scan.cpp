// Scans along one axis of row-major tensors, seen as (outer, axis, inner): each sequence in order, neighbouring
// sequences side by side.
// levels: one
#include "tandem/ops/scan.h"

#include "tandem/backends/cpu/kernels/iterate.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/threads.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cpu::TD_ISA {

namespace {

/// What a running value is carried in.
template <class T>
struct Carry {
  using type = T;
};
template <>
struct Carry<float> {
  using type = double;
};
template <>
struct Carry<BFloat16> {
  using type = float;
};
template <>
struct Carry<Float16> {
  using type = float;
};

template <class T, class C>
T rounded(C value) {
  if constexpr (std::is_class_v<T>)
    return T(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

struct Extent {
  int64_t outer = 1, n = 1, inner = 1;
};
Extent extent_of(const Buffer& x, int64_t axis) {
  Extent e;
  for (int i = 0; i < x.rank; ++i) (i < axis ? e.outer : i == axis ? e.n : e.inner) *= x.shape[i];
  return e;
}

constexpr int64_t kSide = 64;  // sequences worked on side by side

/// Calls body(offset of the first element, how many sequences side by side, step to the next element) over all of them.
template <class F>
void for_scans(const Buffer& x, const ScanAttrs& attrs, F&& body) {
  const Extent e = extent_of(x, attrs.axis);
  if (x.size() == 0) return;
  const int64_t strips = (e.inner + kSide - 1) / kSide;
  const int64_t work = e.n * (e.inner < kSide ? e.inner : kSide);
  parallel_ranges(e.outer * strips, kGrain / work + 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t column = t % strips * kSide, count = e.inner - column < kSide ? e.inner - column : kSide;
      const int64_t first = t / strips * e.n * e.inner + column;
      body(first + (attrs.reverse ? (e.n - 1) * e.inner : 0), count, attrs.reverse ? -e.inner : e.inner, e.n);
    }
  });
}

template <class F>
void visit_scanned(DType dtype, F&& f) {
  if (dtype == DType::i64)
    f(int64_t{});
  else
    visit_floating(dtype, f);
}

template <bool is_product>
void running(const KernelArgs& args) {
  const auto& attrs = args.attributes<ScanAttrs>();
  visit_scanned(args.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename Carry<T>::type;
    const T* x = args.in[0].as<T>();
    T* out = args.out[0].as<T>();
    for_scans(args.in[0], attrs, [&](int64_t at, int64_t count, int64_t step, int64_t n) {
      const auto join = [](C a, C b) { return is_product ? a * b : a + b; };
      if (count == 1) {
        C carried = is_product ? 1 : 0;
        for (int64_t k = 0; k < n; ++k, at += step)
          out[at] = rounded<T>(carried = join(carried, static_cast<C>(x[at])));
        return;
      }
      C carried[kSide];
      for (int64_t c = 0; c < count; ++c) carried[c] = is_product ? 1 : 0;
      for (int64_t k = 0; k < n; ++k, at += step)
        for (int64_t c = 0; c < count; ++c) {
          carried[c] = join(carried[c], static_cast<C>(x[at + c]));
          out[at + c] = rounded<T>(carried[c]);
        }
    });
  });
}

/// The first element is b alone: a[0] never counts, even where it is NaN.
void linear(const KernelArgs& args) {
  visit_floating(args.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename Carry<T>::type;
    const T *a = args.in[0].as<T>(), *b = args.in[1].as<T>();
    T* out = args.out[0].as<T>();
    for_scans(args.in[0], args.attributes<ScanAttrs>(),
              [&](int64_t at, int64_t count, int64_t step, int64_t n) {
                C carried[kSide];
                for (int64_t k = 0; k < n; ++k, at += step)
                  for (int64_t c = 0; c < count; ++c) {
                    const C value = static_cast<C>(b[at + c]);
                    carried[c] = k == 0 ? value : value + static_cast<C>(a[at + c]) * carried[c];
                    out[at + c] = rounded<T>(carried[c]);
                  }
              });
  });
}

/// The value so far is read back from the output, one step before; the later of two equals wins.
template <bool is_max>
void extreme(const KernelArgs& args) {
  const auto visit = [](DType dtype, auto&& f) {
    if (dtype == DType::u64)
      f(uint64_t{});
    else
      visit_scanned(dtype, f);
  };
  visit(args.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = typename ComputeType<T>::type;
    const T* x = args.in[0].as<T>();
    T* out = args.out[0].as<T>();
    int64_t* place = args.out[1].as<int64_t>();
    for_scans(
        args.in[0], args.attributes<ScanAttrs>(), [&](int64_t at, int64_t count, int64_t step, int64_t n) {
          for (int64_t k = 0; k < n; ++k, at += step)
            for (int64_t c = at; c < at + count; ++c) {
              const C value = static_cast<C>(x[c]), best = static_cast<C>(k == 0 ? x[c] : out[c - step]);
              const bool wins = value != value || (best == best && (is_max ? value >= best : value <= best));
              out[c] = wins || k == 0 ? x[c] : out[c - step];
              place[c] = wins || k == 0 ? k : place[c - step];
            }
        });
  });
}

}  // namespace

void register_scan_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_cumsum().kernels[cpu] = running<false>;
  op_cumprod().kernels[cpu] = running<true>;
  op_linear_scan().kernels[cpu] = linear;
  op_cummax().kernels[cpu] = extreme<true>;
  op_cummin().kernels[cpu] = extreme<false>;
}

}  // namespace tandem::cpu::TD_ISA
