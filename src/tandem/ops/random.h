// Random numbers (core/rng.h).
#pragma once

#include "tandem/core/op.h"
#include "tandem/core/rng.h"
#include "tandem/ops/create.h"

namespace tandem {

/// Uniform in [low, high), never high itself, in no type; the same numbers on every device. 24 random bits, in f64 53.
Tensor uniform(const Dims& shape, double low = 0, double high = 1, DType dtype = DType::f32,
               Device device = {});
/// Normal (Box-Muller) from 24 random bits, in f64 from 53.
Tensor normal(const Dims& shape, double mean = 0, double deviation = 1, DType dtype = DType::f32,
              Device device = {});
// Under PyTorch's names: uniform in [0, 1) and standard normal; _like: of x's shape, type (floating) and device.
Tensor rand(const Dims& shape, DType dtype = DType::f32, Device device = {});
Tensor randn(const Dims& shape, DType dtype = DType::f32, Device device = {});
Tensor rand_like(const Tensor& x);
Tensor randn_like(const Tensor& x);
/// 1 with probability p, exact to 2^-64, else 0; floating or bool.
Tensor bernoulli(const Dims& shape, double p, DType dtype = DType::f32, Device device = {});
/// Exponential with the given rate: density rate · exp(-rate · x).
Tensor exponential(const Dims& shape, double rate = 1, DType dtype = DType::f32, Device device = {});
/// Integers, evenly from low … high - 1, all of which the type must hold.
Tensor randint(int64_t low, int64_t high, const Dims& shape, DType dtype = DType::i64, Device device = {});
/// 0 … n-1 in random order, i64: the order of 64-bit random keys.
Tensor randperm(int64_t n, Device device = {});
/// `count` indices (i64) for each row of weights (n) or (rows, n), which need not add up to 1. Without replacement no
/// index comes twice; a row then needs `count` weights above 0. A row without a finite sum above 0, or with a negative
/// weight, is refused on the CPU and gives -1 on a GPU, which is not made to wait.
Tensor multinomial(const Tensor& weights, int64_t count, bool replacement = false);
struct RandomAttrs {
  Dims shape;
  double a = 0, b = 1;  // uniform: low, high; normal: mean, deviation; bernoulli: p, unused
  DType dtype = DType::f32;
  uint8_t device_kind = 0, device_index = 0;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("shape", &RandomAttrs::shape), field("a", &RandomAttrs::a),
                 field("b", &RandomAttrs::b), field("dtype", &RandomAttrs::dtype),
                 field("device_kind", &RandomAttrs::device_kind),
                 field("device_index", &RandomAttrs::device_index));
  }
};
struct RandintAttrs {  // high - low as unsigned; 0 stands for all of 2^64
  Dims shape;
  int64_t low = 0, high = 1;
  uint8_t device_kind = 0, device_index = 0;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("shape", &RandintAttrs::shape), field("low", &RandintAttrs::low),
                 field("high", &RandintAttrs::high), field("device_kind", &RandintAttrs::device_kind),
                 field("device_index", &RandintAttrs::device_index));
  }
};
struct MultinomialAttrs {
  int64_t count = 0;
  template <class Visit>
  static auto fields(Visit visit) {
    return visit(field("count", &MultinomialAttrs::count));
  }
};
/// 64 random bits for element i of an op whose share of the stream begins at `offset`: the word that 32-bit ops take, and
/// the one at the same place of a stream with another key.
TD_HD uint64_t random_word64(uint64_t seed, uint64_t offset, int64_t i) {
  const uint64_t block = offset + static_cast<uint64_t>(i / 4);
  const int k = static_cast<int>(i % 4);
  return static_cast<uint64_t>(philox(seed, block).x[k]) << 32 |
         philox(seed ^ 0x6A09E667F3BCC908ull, block).x[k];
}
/// The same for the four elements of a block, the two words of each kept apart.
struct WordPairs {
  PhiloxBlock upper, lower;
  TD_HD uint64_t operator[](int k) const { return static_cast<uint64_t>(upper.x[k]) << 32 | lower.x[k]; }
};
TD_HD PhiloxBlock lower_words(uint64_t seed, uint64_t block) {
  return philox(seed ^ 0x6A09E667F3BCC908ull, block);
}
/// [0, 1) with 53 random bits.
TD_HD double uniform_from_word64(uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }

/// low + u · (high - low), kept within the numbers of the element type that lie in low <= x < high. `made` has been
/// rounded to that type.
struct UniformDraw {
  double low = 0, range = 1, first = 0, last = 1;
  template <class C>
  TD_HD C raw(C u) const {
    return static_cast<C>(low) + u * static_cast<C>(range);
  }
  template <class C>
  TD_HD C kept(C made) const {
    made = made < static_cast<C>(first) ? static_cast<C>(first) : made;
    return made > static_cast<C>(last) ? static_cast<C>(last) : made;
  }
};
UniformDraw uniform_draw(double low, double high, DType dtype);

/// A chance p as a limit of 64 random bits, of which the lower half is drawn only where the upper one does not decide.
struct ChanceDraw {
  uint32_t upper = 0, lower = 0;
  bool always = false;
  explicit ChanceDraw(double p) : always(p >= 1) {
    const uint64_t limit = always ? 0 : static_cast<uint64_t>(p * 0x1p64);
    upper = static_cast<uint32_t>(limit >> 32);
    lower = static_cast<uint32_t>(limit);
  }
  TD_HD bool undecided(uint32_t word) const { return word == upper; }
  TD_HD bool fires(uint32_t word) const {
    return (word < upper) | always;
  }  // no branch: loops over words become vectors
  TD_HD bool fires(uint32_t word, uint32_t lower_word) const {
    return fires(word) || (word == upper && lower_word < lower);
  }
};

/// The upper half of a · b: evenly 0 … b-1 for random a (b = 0: a itself).
TD_HD uint64_t scaled_word(uint64_t a, uint64_t b) {
  if (b == 0) return a;
  const uint64_t a1 = a >> 32, a0 = a & 0xffffffffu, b1 = b >> 32, b0 = b & 0xffffffffu;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & 0xffffffffu);
  return a1 * b1 + (middle >> 32) + (other >> 32);
}
/// Keys as unsigned numbers in the same order; NaN after everything.
TD_HD uint64_t ordered_key(int64_t x) { return static_cast<uint64_t>(x) ^ 0x8000000000000000ull; }
TD_HD uint64_t ordered_key(double x) {
  const uint64_t u = __builtin_bit_cast(uint64_t, x);
  if (x != x) return ~uint64_t{0};
  return u >> 63 ? ~u : u | 0x8000000000000000ull;
}
OpDef&
op_uniform();  // random. Element i takes word i % 4 of block offset + i / 4 (f64: random_word64): UniformDraw
OpDef&
op_normal();  // random. Words (0,1) and (2,3) of a block make two pairs: see elementary_functions.h normal_pair
OpDef& op_exponential();   // random. -log(1 - u) / rate; RandomAttrs, a = rate
OpDef& op_randint();       // random. out i64: low + scaled_word(random_word64, high - low)
OpDef& op_random_order();  // in keys (rows, n) f64 or i64; out i64: the stable order of each row
OpDef& op_multinomial();   // random. in weights (rows, n) f64; out (rows, count) i64, with replacement
OpDef& op_bernoulli();     // random. 1 where random_word64 < p · 2^64: ChanceDraw

}  // namespace tandem
