// Pointwise kernels: one loop a (op, type), made from the table in scalar_functions.h, over contiguous runs. Strided
// and broadcast inputs are first loaded into small tiles. The same loops serve fused chains (backends/cpu/fused.cpp).
#include "tandem/ops/pointwise.h"
#include "tandem/backends/cpu/kernels/iterate.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/op.h"
#include "tandem/core/threads.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cpu::TD_ISA {

namespace {

template <class F, class T>
struct Loop1 {
  using C = typename ComputeType<T>::type;
  using R = decltype(F{}(C{}));
  using Out = typename Choose<std::is_same_v<R, bool>, bool, T>::type;
  static void run(const void* const* in, const int64_t* step, void* out_memory, int64_t n) {
    const T* x = static_cast<const T*>(in[0]);
    Out* out = static_cast<Out*>(out_memory);
    if (step[0] == 1) {
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(F{}(static_cast<C>(x[i])));
    } else {
      const Out value = static_cast<Out>(F{}(static_cast<C>(x[0])));
      for (int64_t i = 0; i < n; ++i) out[i] = value;
    }
  }
};

template <class F, class T>
struct Loop2 {
  using C = typename ComputeType<T>::type;
  using R = decltype(F{}(C{}, C{}));
  using Out = typename Choose<std::is_same_v<R, bool>, bool, T>::type;
  static void run(const void* const* in, const int64_t* step, void* out_memory, int64_t n) {
    const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
    Out* out = static_cast<Out*>(out_memory);
    if (step[0] == 1 && step[1] == 1) {
      for (int64_t i = 0; i < n; ++i)
        out[i] = static_cast<Out>(F{}(static_cast<C>(a[i]), static_cast<C>(b[i])));
    } else if (step[0] == 1) {
      const C y = static_cast<C>(b[0]);
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(F{}(static_cast<C>(a[i]), y));
    } else if (step[1] == 1) {
      const C x = static_cast<C>(a[0]);
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(F{}(x, static_cast<C>(b[i])));
    } else {
      const Out value = static_cast<Out>(F{}(static_cast<C>(a[0]), static_cast<C>(b[0])));
      for (int64_t i = 0; i < n; ++i) out[i] = value;
    }
  }
};

/// where: a condition and two values of any type (moved, never computed with).
template <class T>
struct Loop3 {
  template <int a_step, int b_step>
  static void select(const bool* c, int64_t c_step, const T* a, const T* b, T* out, int64_t n) {
    if (c_step == 1)
      for (int64_t i = 0; i < n; ++i) out[i] = c[i] ? a[i * a_step] : b[i * b_step];
    else
      for (int64_t i = 0; i < n; ++i) out[i] = c[0] ? a[i * a_step] : b[i * b_step];
  }
  static void run(const void* const* in, const int64_t* step, void* out_memory, int64_t n) {
    const bool* c = static_cast<const bool*>(in[0]);
    const T *a = static_cast<const T*>(in[1]), *b = static_cast<const T*>(in[2]);
    T* out = static_cast<T*>(out_memory);
    if (step[1] == 1 && step[2] == 1)
      select<1, 1>(c, step[0], a, b, out, n);
    else if (step[1] == 1)
      select<1, 0>(c, step[0], a, b, out, n);
    else if (step[2] == 1)
      select<0, 1>(c, step[0], a, b, out, n);
    else
      select<0, 0>(c, step[0], a, b, out, n);
  }
};

enum class Types { every, number, floating };

/// The loop of a row for one type, or null where the row does not take the type.
template <class F, int inputs, Types types>
TileFn tile_of(DType dtype, DType) {
  return visit_dtype(dtype, [](auto zero) -> TileFn {
    using T = decltype(zero);
    constexpr bool floating = std::is_floating_point_v<T> || std::is_class_v<T>;
    if constexpr ((types == Types::floating && !floating) ||
                  (types == Types::number && std::is_same_v<T, bool>))
      return nullptr;
    else if constexpr (inputs == 1)
      return Loop1<F, T>::run;
    else if constexpr (inputs == 2)
      return Loop2<F, T>::run;
    else
      return Loop3<T>::run;
  });
}

template <class To, class From>
void cast_loop(const void* const* in, const int64_t* step, void* out_memory, int64_t n) {
  const From* x = static_cast<const From*>(in[0]);
  To* out = static_cast<To*>(out_memory);
  if (step[0] == 1)
    for (int64_t i = 0; i < n; ++i) out[i] = CastTo<To, From>::apply(x[i]);
  else
    for (int64_t i = 0; i < n; ++i) out[i] = CastTo<To, From>::apply(x[0]);
}

TileFn cast_tile(DType from, DType to) {
  return visit_dtype(from, [&](auto a) -> TileFn {
    return visit_dtype(to, [](auto b) -> TileFn { return cast_loop<decltype(b), decltype(a)>; });
  });
}

/// Runs a tile function over whole (broadcast, strided) buffers.
void run_pointwise(const KernelArgs& args, TileFn tile) {
  constexpr int kMaxInputs = 3;
  const Buffer& out = args.out[0];
  const int64_t n = out.size();
  if (n == 0) return;
  if (n <= kTile) {  // small and plain: no walks
    const void* in[kMaxInputs];
    int64_t step[kMaxInputs];
    bool plain = true;
    for (int i = 0; i < args.n_in && plain; ++i) {
      const Buffer& b = args.in[i];
      in[i] = b.data;
      step[i] = b.rank == 0 ? 0 : 1;
      if (step[i] == 0) continue;
      plain = b.rank == out.rank;
      for (int d = 0; d < b.rank && plain; ++d)
        plain = b.shape[d] == out.shape[d] && b.strides[d] == out.strides[d];
    }
    if (plain) return tile(in, step, out.data, n);
  }
  Walk walks[kMaxInputs];
  bool direct = true;  // every input is one run or one value
  for (int i = 0; i < args.n_in; ++i) {
    walks[i] = walk_over(args.in[i], out.shape, out.rank);
    direct = direct && (walks[i].is_contiguous() || walks[i].is_scalar());
  }
  const int64_t out_width = static_cast<int64_t>(bytes_of(out.dtype));
  parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) char tiles[kMaxInputs][kTile * 8];
    const int64_t piece = direct ? end - begin : kTile;
    for (int64_t at = begin; at < end; at += piece) {
      const int64_t count = end - at < piece ? end - at : piece;
      const void* in[kMaxInputs];
      int64_t step[kMaxInputs];
      for (int i = 0; i < args.n_in; ++i) {
        step[i] = walks[i].is_scalar() ? 0 : 1;
        in[i] = step[i] ? run_of(walks[i], at, count, tiles[i]) : walks[i].data;
      }
      tile(in, step, out.as<char>() + at * out_width, count);
    }
  });
}

template <class F, int inputs, Types types>
void kernel(const KernelArgs& args) {
  run_pointwise(args, tile_of<F, inputs, types>(args.in[args.n_in - 1].dtype, args.out[0].dtype));
}

}  // namespace

void register_pointwise_kernels() {
#define TD_ROW(name, Functor, inputs, types) \
  { \
    OpDef& op = *find_op(#name); \
    op.kernels[static_cast<int>(DeviceKind::cpu)] = kernel<Functor, inputs, Types::types>; \
    op.tile = tile_of<Functor, inputs, Types::types>; \
  }
  TD_POINTWISE_OPS(TD_ROW)
#undef TD_ROW
  op_cast().kernels[static_cast<int>(DeviceKind::cpu)] = [](const KernelArgs& args) {
    run_pointwise(args, cast_tile(args.in[0].dtype, args.out[0].dtype));
  };
  op_cast().tile = cast_tile;
}

}  // namespace tandem::cpu::TD_ISA
