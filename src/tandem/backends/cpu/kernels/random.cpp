// full, arange and the random ops. Element i of a random op depends on (seed, offset, i) alone.
// loops: short
#include "tandem/ops/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "tandem/backends/cpu/kernels/iterate.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/backends/cpu/kernels/simd.h"
#include "tandem/core/error.h"
#include "tandem/core/threads.h"
#include "tandem/ops/scalar_functions.h"

namespace tandem::cpu::TD_ISA {

namespace {

void full(const KernelArgs& args) {
  const auto& a = args.attributes<FullAttrs>();
  const Buffer& out = args.out[0];
  visit_dtype(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    T value;
    if constexpr (std::is_class_v<T>)
      value = T(static_cast<float>(a.value));
    else if constexpr (std::is_floating_point_v<T>)
      value = static_cast<T>(a.value);
    else
      value = static_cast<T>(a.integer);
    T* data = out.as<T>();
    parallel_ranges(out.size(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) data[i] = value;
    });
  });
}

void arange(const KernelArgs& args) {
  const Buffer& out = args.out[0];
  visit_dtype(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* data = out.as<T>();
    const int64_t n = out.size();
    for (int64_t i = 0; i < n; ++i) data[i] = CastTo<T, int64_t>::apply(i);
  });
}

/// Where an op's share of the stream begins.
struct Stream {
  uint64_t seed, offset;
  explicit Stream(const RngPosition& rng)
      : seed(rng.base ? rng.base[0] : rng.seed), offset(rng.offset + (rng.base ? rng.base[1] : 0)) {}
};

/// Calls make(number of a block, four values out) for each block of four elements; `keep` sees each as it was rounded.
template <class C, class T, class Make, class Keep>
void fill_blocks(const Buffer& out, Make&& make, Keep&& keep) {
  T* data = out.as<T>();
  parallel_ranges(out.size(), kGrain, [&](int64_t begin, int64_t end) {  // kGrain is a multiple of 4
    for (int64_t i = begin; i < end; i += 4) {
      C four[4];
      make(static_cast<uint64_t>(i / 4), four);
      for (int64_t k = 0; k < 4 && i + k < end; ++k)
        data[i + k] = static_cast<T>(keep(static_cast<C>(static_cast<T>(four[k]))));
    }
  });
}

/// make(words of a block, four out): f64 from 64-bit words, the other types in f32 from 32-bit words.
template <class Make, class Keep>
void fill_random(const KernelArgs& args, Make&& make, Keep&& keep) {
  const Buffer& out = args.out[0];
  const Stream stream(args.rng);
  visit_floating(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, double>)
      fill_blocks<double, double>(
          out,
          [&](uint64_t i, double* four) {
            const uint64_t block = stream.offset + i;
            make(WordPairs{philox(stream.seed, block), lower_words(stream.seed, block)}, four);
          },
          keep);
    else
      fill_blocks<float, T>(
          out, [&](uint64_t i, float* four) { make(philox(stream.seed, stream.offset + i), four); }, keep);
  });
}
template <class Make>
void fill_random(const KernelArgs& args, Make&& make) {
  fill_random(args, make, [](auto x) { return x; });
}

float unit(const PhiloxBlock& words, int k) { return uniform_from_bits(words.x[k]); }
double unit(const WordPairs& words, int k) { return uniform_from_word64(words[k]); }
NormalPair normals(const PhiloxBlock& words, int k) { return normal_pair(words.x[k], words.x[k + 1]); }
NormalPairDouble normals(const WordPairs& words, int k) {
  return normal_pair(static_cast<unsigned long long>(words[k]),
                     static_cast<unsigned long long>(words[k + 1]));
}

void uniform(const KernelArgs& args) {
  const auto& a = args.attributes<RandomAttrs>();
  const UniformDraw draw = uniform_draw(a.a, a.b, a.dtype);
  fill_random(
      args,
      [=](const auto& words, auto* four) {
        for (int k = 0; k < 4; ++k) four[k] = draw.raw(unit(words, k));
      },
      [=](auto x) { return draw.kept(x); });
}

void normal(const KernelArgs& args) {
  const auto& a = args.attributes<RandomAttrs>();
  fill_random(args, [=](const auto& words, auto* four) {
    using C = std::remove_reference_t<decltype(*four)>;
    const C mean = static_cast<C>(a.a), deviation = static_cast<C>(a.b);
    for (int k = 0; k < 4; k += 2) {
      const auto pair = normals(words, k);
      four[k] = mean + deviation * pair.first;
      four[k + 1] = mean + deviation * pair.second;
    }
  });
}

/// philox() of kRun blocks in a row, of which a vector has a lane each.
constexpr int kRun = 4 * kLanes<uint64_t>;
using RunOfWords = uint32_t[4][kRun];
void draw_words(const Stream& stream, uint64_t first_block, RunOfWords& words) {
  using Lanes = Vec<uint64_t>;
  constexpr uint64_t kLow = 0xffffffffu;
  uint64_t places[kLanes<uint64_t>];
  std::iota(std::begin(places), std::end(places), stream.offset + first_block);
  for (int b = 0; b < kRun; b += kLanes<uint64_t>) {
    // What lies in upper halves is never looked at.
    Lanes c0 = load(places) + static_cast<uint64_t>(b), c1 = c0 >> 32, c2 = {}, c3 = {};
    uint64_t k0 = stream.seed & kLow, k1 = stream.seed >> 32;
    for (int round = 0; round < 10; ++round) {
      const Lanes p0 = multiply_halves(c0, splat<uint64_t>(0xD2511F53u)),
                  p1 = multiply_halves(c2, splat<uint64_t>(0xCD9E8D57u));
      c0 = (p1 >> 32) ^ c1 ^ k0;
      c2 = (p0 >> 32) ^ c3 ^ k1;
      c1 = p1, c3 = p0;
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    using Halves = SomeOf<uint32_t, kLanes<uint64_t>>;
    const Lanes all[] = {c0, c1, c2, c3};
    for (int k = 0; k < 4; ++k)
      *reinterpret_cast<Halves::unaligned*>(words[k] + b) = __builtin_convertvector(all[k], Halves::type);
  }
}

static_assert(std::endian::native == std::endian::little, "bernoulli_of() lays out bytes of a word");

template <class T>
void bernoulli_of(const KernelArgs& args) {
  const ChanceDraw chance(args.attributes<RandomAttrs>().a);
  const Stream stream(args.rng);
  T* data = args.out[0].as<T>();
  parallel_ranges(args.out[0].size(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += 4 * kRun) {
      RunOfWords words;
      uint32_t fours[kRun];  // a byte for each element of a block
      const auto first_block = static_cast<uint64_t>(i / 4);
      draw_words(stream, first_block, words);
      uint32_t undecided = 0;
      for (int b = 0; b < kRun; ++b) {
        fours[b] = 0;
        for (int k = 0; k < 4; ++k) {
          const uint32_t word = words[k][b];
          fours[b] |= static_cast<uint32_t>(chance.fires(word)) << (8 * k);
          undecided |= static_cast<uint32_t>(chance.undecided(word));
        }
      }
      uint8_t ones[4 * kRun];
      std::memcpy(ones, fours, sizeof ones);
      if (undecided) [[unlikely]]  // one word in 2^32: the lower 32 bits decide
        for (int b = 0; b < kRun; ++b) {
          const PhiloxBlock lower =
              lower_words(stream.seed, stream.offset + first_block + static_cast<uint64_t>(b));
          for (int k = 0; k < 4; ++k) ones[4 * b + k] = chance.fires(words[k][b], lower.x[k]);
        }
      const int64_t count = std::min<int64_t>(4 * kRun, end - i);
      for (int64_t n = 0; n < count; ++n) data[i + n] = static_cast<T>(static_cast<float>(ones[n]));
    }
  });
}
void bernoulli(const KernelArgs& args) {
  if (args.out[0].dtype == DType::boolean) return bernoulli_of<bool>(args);
  visit_floating(args.out[0].dtype, [&](auto zero) { bernoulli_of<decltype(zero)>(args); });
}

void exponential(const KernelArgs& args) {
  const double rate = args.attributes<RandomAttrs>().a;
  fill_random(args, [=](const auto& words, auto* four) {
    using C = std::remove_reference_t<decltype(*four)>;
    for (int k = 0; k < 4; ++k) four[k] = (C(0) - log_(C(1) - unit(words, k))) / static_cast<C>(rate);
  });
}

/// 64 random bits for each element.
struct Words : Stream {
  using Stream::Stream;
  uint64_t operator[](int64_t i) const { return random_word64(seed, offset, i); }
};

void randint(const KernelArgs& args) {
  const auto& a = args.attributes<RandintAttrs>();
  const uint64_t range = static_cast<uint64_t>(a.high) - static_cast<uint64_t>(a.low);
  const Words words(args.rng);
  int64_t* out = args.out[0].as<int64_t>();
  parallel_ranges(args.out[0].size(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      out[i] = static_cast<int64_t>(static_cast<uint64_t>(a.low) + scaled_word(words[i], range));
  });
}

/// The sum of a row of weights; refuses what cannot be drawn from.
double checked_sum(const double* w, int64_t n, int64_t row) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) {
    TD_CHECK(w[i] >= 0, "multinomial: weights must not be negative or NaN; got ", w[i], " at place ", i,
             " of row ", row, ".");
    total += w[i];
  }
  TD_CHECK(total > 0 && std::isfinite(total),
           "multinomial: the weights of a row must have a finite sum above 0; got ", total, " for row ", row,
           ".");
  return total;
}

void random_order(const KernelArgs& args) {
  const Buffer& keys = args.in[0];
  const int64_t rows = keys.shape[0], n = keys.shape[1];
  if (args.n_in == 2) {
    const int64_t count = args.attributes<MultinomialAttrs>().count;
    for (int64_t row = 0; row < rows; ++row) {
      const double* w = args.in[1].as<const double>() + row * n;
      checked_sum(w, n, row);
      const int64_t above = std::count_if(w, w + n, [](double x) { return x > 0; });
      TD_CHECK(above >= count, "multinomial: without replacement a row must have ", count,
               " weights above 0; got ", above, " in row ", row, ". Draw fewer, or with replacement.");
    }
  }
  struct Item {
    uint64_t key;
    int64_t index;
    bool operator<(const Item& other) const {
      return key != other.key ? key < other.key : index < other.index;
    }
  };
  parallel_for(n == 0 ? 0 : rows, [&](int64_t row) {
    std::vector<Item> items(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
      items[static_cast<size_t>(i)] = {keys.dtype == DType::i64 ? ordered_key(keys.as<int64_t>()[row * n + i])
                                                                : ordered_key(keys.as<double>()[row * n + i]),
                                       i};
    std::sort(items.begin(), items.end());
    for (int64_t i = 0; i < n; ++i)
      args.out[0].as<int64_t>()[row * n + i] = items[static_cast<size_t>(i)].index;
  });
}

void multinomial(const KernelArgs& args) {
  const Buffer& weights = args.in[0];
  const int64_t rows = weights.shape[0], n = weights.shape[1],
                count = args.attributes<MultinomialAttrs>().count;
  const Words words(args.rng);
  std::vector<double> totals;  // one after the other, so that the first bad row is named
  for (int64_t row = 0; row < rows; ++row)
    totals.push_back(checked_sum(weights.as<double>() + row * n, n, row));
  parallel_for(rows, [&](int64_t row) {
    const double* w = weights.as<double>() + row * n;
    const double total = totals[static_cast<size_t>(row)];
    std::vector<double> upto(static_cast<size_t>(n));
    std::partial_sum(w, w + n, upto.begin());
    int64_t last = n - 1;
    while (w[last] == 0) --last;
    for (int64_t k = 0; k < count; ++k) {
      const double target = static_cast<double>(words[row * count + k] >> 11) * 0x1p-53 * total;
      const int64_t found = std::upper_bound(upto.begin(), upto.end(), target) - upto.begin();
      args.out[0].as<int64_t>()[row * count + k] = std::min(found, last);
    }
  });
}

}  // namespace

void register_random_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_full().kernels[cpu] = full;
  op_arange().kernels[cpu] = arange;
  op_uniform().kernels[cpu] = uniform;
  op_normal().kernels[cpu] = normal;
  op_bernoulli().kernels[cpu] = bernoulli;
  op_exponential().kernels[cpu] = exponential;
  op_randint().kernels[cpu] = randint;
  op_random_order().kernels[cpu] = random_order;
  op_multinomial().kernels[cpu] = multinomial;
}

}  // namespace tandem::cpu::TD_ISA
