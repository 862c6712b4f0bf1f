// argsort and searchsorted, on keys (ops/sort_key.h). An order has one result, since equal keys stay in their order:
// whatever algorithm runs, on however many threads.
// levels: one
#include <algorithm>
#include <vector>

#include "tandem/backends/cpu/kernels/iterate.h"
#include "tandem/backends/cpu/kernels/register.h"
#include "tandem/core/threads.h"
#include "tandem/ops/index.h"
#include "tandem/ops/sort_key.h"

namespace tandem::cpu::TD_ISA {

namespace {

/// A key with the place it came from. Keys of 32 bits share a word with the place.
struct Narrow {
  static constexpr int kKeyBits = 32;
  uint64_t word;
  static Narrow make(uint32_t key, int64_t place) {
    return {static_cast<uint64_t>(key) << 32 | static_cast<uint64_t>(place)};
  }
  uint64_t key() const { return word >> 32; }
  int64_t place() const { return static_cast<int64_t>(word & 0xffffffffu); }
  friend bool operator<(Narrow a, Narrow b) { return a.word < b.word; }
};
struct Wide {
  static constexpr int kKeyBits = 64;
  uint64_t bits;
  int64_t at;
  static Wide make(uint64_t key, int64_t place) { return {key, place}; }
  uint64_t key() const { return bits; }
  int64_t place() const { return at; }
  friend bool operator<(const Wide& a, const Wide& b) {
    return a.bits != b.bits ? a.bits < b.bits : a.at < b.at;
  }
};

constexpr int kDigitBits = 11, kDigits = 1 << kDigitBits;
constexpr int64_t kBlock = int64_t{1} << 16;  // of a long line: counted and moved by one thread

/// Sorts a by its keys, from the lowest digits up; b is as large. Returns the one that holds the result.
/// Stable: the starts are counted by digit first and by block second, so that the items of one digit keep their order
/// over the blocks, and each block moves its own in order to places that are its own.
template <class Item>
Item* radix_sort(Item* a, Item* b, int64_t n) {
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  std::vector<int64_t> counts(static_cast<size_t>(blocks) * kDigits);
  for (int shift = 0; shift < Item::kKeyBits; shift += kDigitBits) {
    const auto digit = [&](const Item& item) { return item.key() >> shift & (kDigits - 1); };
    std::fill(counts.begin(), counts.end(), 0);
    parallel_for(blocks, [&](int64_t block) {
      int64_t* count = counts.data() + block * kDigits;
      const int64_t end = std::min(n, (block + 1) * kBlock);
      for (int64_t i = block * kBlock; i < end; ++i) ++count[digit(a[i])];
    });
    int64_t start = 0;
    bool all_alike = false;
    for (int d = 0; d < kDigits; ++d) {
      const int64_t before = start;
      for (int64_t block = 0; block < blocks; ++block) {
        int64_t& count = counts[static_cast<size_t>(block * kDigits + d)];
        start += count;
        count = start - count;
      }
      all_alike = all_alike || start - before == n;
    }
    // No item would move.
    if (all_alike) continue;
    parallel_for(blocks, [&](int64_t block) {
      int64_t* to = counts.data() + block * kDigits;
      const int64_t end = std::min(n, (block + 1) * kBlock);
      for (int64_t i = block * kBlock; i < end; ++i) b[to[digit(a[i])]++] = a[i];
    });
    std::swap(a, b);
  }
  return a;
}

constexpr int64_t kFew = 1024;  // so many are kept in a heap while the rest goes by

/// The first `count` of the order of make(0) … make(n - 1).
template <class Item, class Make>
const Item* first_of_order(std::vector<Item>& items, std::vector<Item>& other, int64_t n, int64_t count,
                           const Make& make) {
  // Items with their places are all different, so that any way of choosing gives the same first `count`.
  if (count <= kFew && count < n / 4) {
    items.clear();
    for (int64_t i = 0; i < count; ++i) items.push_back(make(i));
    std::make_heap(items.begin(), items.end());  // the last of the order in front
    for (int64_t i = count; i < n; ++i) {
      const Item item = make(i);
      if (!(item < items.front())) continue;
      std::pop_heap(items.begin(), items.end());
      items.back() = item;
      std::push_heap(items.begin(), items.end());
    }
    std::sort_heap(items.begin(), items.end());
    return items.data();
  }
  items.resize(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) items[static_cast<size_t>(i)] = make(i);
  if (count < n / 4) {
    std::nth_element(items.begin(), items.begin() + count, items.end());
    std::sort(items.begin(), items.begin() + count);
    return items.data();
  }
  if (n < 256) {  // the counts of a radix sort would cost more than they save
    std::sort(items.begin(), items.end());
    return items.data();
  }
  other.resize(items.size());
  return radix_sort(items.data(), other.data(), n);
}

template <class Item, class T>
void argsort_typed(const KernelArgs& args) {
  const auto& a = args.attributes<SortAttrs>();
  const Buffer& x = args.in[0];
  int64_t lines = 1, inner = 1;
  for (int d = 0; d < x.rank; ++d)
    if (d != a.axis) lines *= x.shape[d];
  for (int d = static_cast<int>(a.axis) + 1; d < x.rank; ++d) inner *= x.shape[d];
  const int64_t n = x.shape[a.axis];
  int64_t* out = args.out[0].as<int64_t>();
  const auto sort_lines = [&](int64_t begin, int64_t end) {
    std::vector<Item> items, other;
    for (int64_t line = begin; line < end; ++line) {
      const T* from = x.as<T>() + line / inner * n * inner + line % inner;
      const Item* order = first_of_order(items, other, n, a.count, [&](int64_t i) {
        const auto key = sort_key(from[i * inner]);
        return Item::make(a.descending ? ~key : key, i);
      });
      int64_t* to = out + line / inner * a.count * inner + line % inner;
      for (int64_t i = 0; i < a.count; ++i) to[i * inner] = order[i].place();
    }
  };
  if (n > kBlock)  // the threads share each line
    sort_lines(0, lines);
  else
    parallel_ranges(lines, kGrain / (n + 1) + 1, sort_lines);
}

void argsort(const KernelArgs& args) {
  const Buffer& x = args.in[0];
  if (args.out[0].size() == 0) return;
  const bool is_long = x.shape[args.attributes<SortAttrs>().axis] > int64_t{0xffffffff};
  TD_CHECK(!is_long, "sort: an axis must have at most 2^32 - 1 elements; got ",
           x.shape[args.attributes<SortAttrs>().axis], ".");
  visit_dtype(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    argsort_typed<std::conditional_t<sizeof(T) == 8, Wide, Narrow>, T>(args);
  });
}

void searchsorted(const KernelArgs& args) {
  const Buffer &sequence = args.in[0], &values = args.in[1];
  const bool right = args.attributes<SearchAttrs>().right;
  const int64_t n = sequence.shape[sequence.rank - 1];
  const int64_t row = sequence.rank > 1 ? values.shape[values.rank - 1] : values.size();
  int64_t* out = args.out[0].as<int64_t>();
  visit_dtype(values.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_ranges(values.size(), kTile, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* from = sequence.as<T>() + i / row * n;
        const auto key = sort_key(values.as<T>()[i]);
        int64_t low = 0, high = n;
        while (low < high) {
          const int64_t middle = low + (high - low) / 2;
          const auto there = sort_key(from[middle]);
          if (there < key || (right && there == key))
            low = middle + 1;
          else
            high = middle;
        }
        out[i] = low;
      }
    });
  });
}

}  // namespace

void register_sort_kernels() {
  constexpr int cpu = static_cast<int>(DeviceKind::cpu);
  op_argsort().kernels[cpu] = argsort;
  op_searchsorted().kernels[cpu] = searchsorted;
}

}  // namespace tandem::cpu::TD_ISA
