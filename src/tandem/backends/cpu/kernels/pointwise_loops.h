// The loops of pointwise ops over contiguous runs, made from the functors of scalar_functions.h. Each instruction-set level compiles
// those over floating types (pointwise.cpp); those over whole numbers are compiled once (pointwise_integers.cpp).
#pragma once

#include "tandem/backends/cpu/pointwise.h"

namespace tandem::cpu::TD_ISA {

namespace {

constexpr int64_t kBlock = 256;  // elements converted at a time

/// `n` equal elements after the first.
template <class T>
void fill(T* out, int64_t n) {
  const T value = out[0];
  for (int64_t i = 1; i < n; ++i) out[i] = value;
}

// The output may be the very memory of an input, never a part of it: iterations do not depend on each other.
#define TD_EACH(i, n) _Pragma("GCC ivdep") for (int64_t i = 0; i < (n); ++i)

/// `two_chains`: for functions that are one long chain of operations, each waiting for the one before. Two elements at a
/// time, from the two halves, are two chains side by side.
template <class F, class T, bool two_chains = false>
struct Loop1 {
  using C = typename ComputeType<T>::type;
  using Out = typename Choose<std::is_same_v<decltype(F{}(C{})), bool>, bool, T>::type;
  static void run(const void* const* in, const int64_t* step, void* out_memory, int64_t n) {
    const T* x = static_cast<const T*>(in[0]);
    Out* out = static_cast<Out*>(out_memory);
    const int64_t count = step[0] ? n : 1;
    int64_t done = 0;
    if constexpr (NearOnly<F>::kDiffers) {  // seldom: an argument that is far away needs a branch
      int64_t far = 0;
      for (int64_t i = 0; i < count; ++i) far += abs_(x[i]) >= kFarAngle;
      if (far == 0) return Loop1<typename NearOnly<F>::type, T>::run(in, step, out_memory, n);
    }
    if constexpr (two_chains) {
      const int64_t half = count / 32 * 16;
      TD_EACH(i, half) {
        const Out near = static_cast<Out>(F{}(static_cast<C>(x[i])));
        const Out far = static_cast<Out>(F{}(static_cast<C>(x[i + half])));
        out[i] = near;
        out[i + half] = far;
      }
      done = 2 * half;
    }
    TD_EACH(i, count - done) out[done + i] = static_cast<Out>(F{}(static_cast<C>(x[done + i])));
    if (count != n) fill(out, n);
  }
};

/// Calls a loop that wants arrays only, in blocks, with single values spread out.
template <class T, int inputs>
void with_arrays(TileFn loop, const void* const* in, const int64_t* step, char* out, int64_t out_width,
                 int64_t n) {
  T spread[inputs][kBlock];
  const int64_t ones[3] = {1, 1, 1}, block = n < kBlock ? n : kBlock;
  for (int i = 0; i < inputs; ++i)
    if (!step[i])
      for (int64_t j = 0; j < block; ++j) spread[i][j] = static_cast<const T*>(in[i])[0];
  for (int64_t at = 0; at < n; at += kBlock) {
    const void* from[3];
    for (int i = 0; i < inputs; ++i) from[i] = step[i] ? static_cast<const T*>(in[i]) + at : spread[i];
    loop(from, ones, out + at * out_width, n - at < kBlock ? n - at : kBlock);
  }
}

/// Long functions have one loop; short ones also loops with a single value on either side.
template <class F>
inline constexpr bool kLong = kWide<F>;
template <>
inline constexpr bool kLong<Pow> = true;
template <>
inline constexpr bool kLong<Remainder> = true;
template <>
inline constexpr bool kLong<Fmod> = true;
template <>
inline constexpr bool kLong<FloorDivide> = true;
template <>
inline constexpr bool kLong<GeluGradient> = true;
template <>
inline constexpr bool kLong<GeluTanhGradient> = true;
template <>
inline constexpr bool kLong<SiluGradient> = true;

template <class F, class T>
struct Loop2 {
  using C = typename ComputeType<T>::type;
  using Out = typename Choose<std::is_same_v<decltype(F{}(C{}, C{})), bool>, bool, T>::type;
  static void run(const void* const* in, const int64_t* step, void* out_memory, int64_t n) {
    const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
    Out* out = static_cast<Out*>(out_memory);
    const int64_t count = step[0] || step[1] ? n : 1;
    if (step[0] == step[1]) {
      TD_EACH(i, count) out[i] = static_cast<Out>(F{}(static_cast<C>(a[i]), static_cast<C>(b[i])));
      if (count != n) fill(out, n);
    } else if constexpr (kLong<F>) {
      with_arrays<T, 2>(run, in, step, static_cast<char*>(out_memory), sizeof(Out), n);
    } else if (step[0]) {
      const C y = static_cast<C>(b[0]);
      TD_EACH(i, n) out[i] = static_cast<Out>(F{}(static_cast<C>(a[i]), y));
    } else {
      const C x = static_cast<C>(a[0]);
      TD_EACH(i, n) out[i] = static_cast<Out>(F{}(x, static_cast<C>(b[i])));
    }
  }
};

template <class F, class T>
struct Loop3 {
  using C = typename ComputeType<T>::type;
  static void run(const void* const* in, const int64_t* step, void* out_memory, int64_t n) {
    const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]),
            *c = static_cast<const T*>(in[2]);
    T* out = static_cast<T*>(out_memory);
    if (step[0] && step[1] && step[2]) {
      TD_EACH(i, n)
      out[i] = static_cast<T>(F{}(static_cast<C>(a[i]), static_cast<C>(b[i]), static_cast<C>(c[i])));
    } else if (step[0] && !step[1] && !step[2]) {  // clamp between two numbers
      const C y = static_cast<C>(b[0]), z = static_cast<C>(c[0]);
      TD_EACH(i, n) out[i] = static_cast<T>(F{}(static_cast<C>(a[i]), y, z));
    } else {
      with_arrays<T, 3>(run, in, step, static_cast<char*>(out_memory), sizeof(T), n);
    }
  }
};

/// where: a condition and two values, moved by width.
template <class T>
struct SelectLoop {
  template <int a_step, int b_step>
  static void select(const bool* c, int64_t c_step, const T* a, const T* b, T* out, int64_t n) {
    if (c_step == 1) {
      TD_EACH(i, n) {
        const T x = a[i * a_step], y = b[i * b_step];
        out[i] = c[i] ? x : y;
      }
    } else if (*c) {
      TD_EACH(i, n) out[i] = a[i * a_step];
    } else {
      TD_EACH(i, n) out[i] = b[i * b_step];
    }
  }
  static void run(const void* const* in, const int64_t* step, void* out_memory, int64_t n) {
    const bool* c = static_cast<const bool*>(in[0]);
    const T *a = static_cast<const T*>(in[1]), *b = static_cast<const T*>(in[2]);
    T* out = static_cast<T*>(out_memory);
    if (step[1] && step[2])
      select<1, 1>(c, step[0], a, b, out, n);
    else if (step[1])
      select<1, 0>(c, step[0], a, b, out, n);
    else if (step[2])
      select<0, 1>(c, step[0], a, b, out, n);
    else
      select<0, 0>(c, step[0], a, b, out, n);
  }
};

template <class To, class From>
struct CastLoop {
  static void run(const void* const* in, const int64_t* step, void* out_memory, int64_t n) {
    const From* x = static_cast<const From*>(in[0]);
    To* out = static_cast<To*>(out_memory);
    const int64_t count = step[0] ? n : 1;
    TD_EACH(i, count) out[i] = CastTo<To, From>::apply(x[i]);
    if (count != n) fill(out, n);
  }
};

// ---- loops made of a conversion, another type's loop, and a conversion back

struct Widths {
  int inputs, in, out;  // in and out: bytes per element
};

void run_converted(TileFn load, TileFn loop, TileFn store, const Widths& w, const void* const* in,
                   const int64_t* step, char* out, int64_t n) {
  alignas(64) char cores[3][kBlock * 8], results[kBlock * 8];
  const int64_t one = 1;
  const void* from[3] = {cores[0], cores[1], cores[2]};
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = n - at < kBlock ? n - at : kBlock;
    for (int i = 0; i < w.inputs; ++i) {
      const void* source = static_cast<const char*>(in[i]) + step[i] * at * w.in;
      if (!load)
        from[i] = source;
      else if (step[i] || at == 0)  // a single value is converted once
        load(&source, &one, cores[i], step[i] ? count : 1);
    }
    char* target = out + at * w.out;
    if (!store) {
      loop(from, step, target, count);
      continue;
    }
    loop(from, step, results, count);
    const void* made = results;
    store(&made, &one, target, count);
  }
}

/// A loop over From → To, done by `loop` over From's core type → ToCore.
template <int inputs, class From, class Core, TileFn loop, class OutCore, class To>
void converted(const void* const* in, const int64_t* step, void* out, int64_t n) {
  constexpr TileFn load = std::is_same_v<From, Core> ? nullptr : CastLoop<Core, From>::run;
  constexpr TileFn store = std::is_same_v<OutCore, To> ? nullptr : CastLoop<To, OutCore>::run;
  constexpr Widths widths{inputs, sizeof(From), sizeof(To)};
  run_converted(load, loop, store, widths, in, step, static_cast<char*>(out), n);
}

// ---- which loop serves a type

enum class Types { every, number, floating, integer, bits };

template <class F>
inline constexpr bool kDirectHalves =
    std::is_same_v<F, Add> || std::is_same_v<F, Sub> || std::is_same_v<F, Mul> || std::is_same_v<F, Div> ||
    std::is_same_v<F, Relu> || std::is_same_v<F, ReluGradient>;

template <class F, int inputs, class T, bool two_chains = false>
constexpr TileFn direct() {
  if constexpr (inputs == 1)
    return Loop1<F, T, two_chains>::run;
  else if constexpr (inputs == 2)
    return Loop2<F, T>::run;
  else
    return Loop3<F, T>::run;
}

template <class F, int inputs, class C>
struct ResultOf;
template <class F, class C>
struct ResultOf<F, 1, C> {
  using type = typename Loop1<F, C>::Out;
};
template <class F, class C>
struct ResultOf<F, 2, C> {
  using type = typename Loop2<F, C>::Out;
};
template <class F, class C>
struct ResultOf<F, 3, C> {
  using type = C;
};

/// The row's loop for T by way of Core's.
template <class F, int inputs, class T, class Core>
constexpr TileFn through() {
  using Result = typename ResultOf<F, inputs, Core>::type;
  using Out = typename Choose<std::is_same_v<Result, bool>, bool, T>::type;
  return converted<inputs, T, Core, direct<F, inputs, Core>(), Result, Out>;
}

}  // namespace
}  // namespace tandem::cpu::TD_ISA
