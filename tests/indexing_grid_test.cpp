// A grid of indexing, sorting and searching over many shapes and axes, with empty tensors, ties and NaN, against
// PyTorch's results (golden/indexing.txt, written by make_golden.py).
// ctest: asan
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>

#include "tandem/core/tape.h"
#include "tandem/ops/index.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/scatter_reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/paths.h"
#include "tests/support/values.h"

namespace tandem::testing {
namespace {

std::vector<std::string> parts_of(const std::string& text, char between) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, between);) parts.push_back(part);
  return parts;
}

std::vector<int64_t> numbers_of(const std::string& text) {
  std::vector<int64_t> numbers;
  for (const std::string& part : parts_of(text == "-" ? "" : text, ',')) numbers.push_back(std::stoll(part));
  return numbers;
}
Dims shape_of(const std::string& text) { return Dims(std::span<const Dim>(numbers_of(text))); }

struct Row {
  std::string op;
  Tensor x;
  std::vector<int64_t> numbers;
  std::vector<Tensor> indices;
  Array want;
};

Tensor grid_input(const std::string& kind, const Dims& shape) {
  Array x(shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<uint32_t>(i);
    x[i] = kind == "n"                             ? static_cast<double>(i)
           : kind == "t" && hash32(at, 9) % 6 == 0 ? std::nan("")
                                                   : std::floor(hash_value(at, 21, -3, 3)) / 2;
  }
  return to_tensor(x, DType::f32);
}

Row parse(const std::string& line) {
  std::istringstream in(line);
  Row row;
  std::string kind, shape, numbers;
  in >> row.op >> kind >> shape >> numbers;
  row.x = grid_input(kind, shape_of(shape));
  row.numbers = numbers_of(numbers);
  std::string word;
  for (in >> word; in && word != "="; in >> word) {
    const std::vector<std::string> parts = parts_of(word, ':');
    const auto salt = static_cast<uint32_t>(std::stoul(parts.at(1)));
    const Array values = hash_array(shape_of(parts[0]), salt, std::stod(parts.at(2)), std::stod(parts.at(3)));
    Array whole = values;
    for (double& v : whole.values) v = std::floor(v);
    row.indices.push_back(to_tensor(whole, DType::i64));
  }
  in >> shape;
  row.want = Array(shape_of(shape));
  for (double& v : row.want.values) {
    in >> word;
    v = std::stod(word);
  }
  EXPECT_FALSE(in.fail()) << "the file is cut short: " << line;
  return row;
}

std::vector<Subscript> subscripts(const Row& r) {
  std::vector<Subscript> by_axis(static_cast<size_t>(r.x.rank()), Slice{});
  for (size_t i = 0; i < r.numbers.size(); ++i) by_axis[static_cast<size_t>(r.numbers[i])] = r.indices[i];
  return by_axis;
}

const std::map<std::string, std::function<Tensor(const Row&)>>& calls() {
  static const std::map<std::string, std::function<Tensor(const Row&)>> table = {
      {"slice",
       [](const Row& r) { return slice(r.x, r.numbers[0], r.numbers[1], r.numbers[2], r.numbers[3]); }},
      {"select", [](const Row& r) { return select(r.x, r.numbers[0], r.numbers[1]); }},
      {"gather", [](const Row& r) { return gather(r.x, r.numbers[0], r.indices[0]); }},
      {"scatter_add",
       [](const Row& r) { return scatter_add(r.x, r.numbers[0], r.indices[0], ones(r.indices[0].shape())); }},
      {"scatter_number", [](const Row& r) { return scatter(r.x, r.numbers[0], r.indices[0], 9); }},
      {"take_along", [](const Row& r) { return take_along(r.x, r.indices[0], r.numbers[0]); }},
      {"index_select", [](const Row& r) { return index_select(r.x, r.numbers[0], r.indices[0]); }},
      {"index_add",
       [](const Row& r) {
         Dims shape = r.x.shape();
         shape[static_cast<int>(r.numbers[0])] = r.indices[0].size();
         return index_add(r.x, r.numbers[0], r.indices[0], ones(shape));
       }},
      {"index", [](const Row& r) { return index(r.x, subscripts(r)); }},
      {"index_put_add", [](const Row& r) { return index_put(r.x, subscripts(r), 1, true); }},
      {"sort", [](const Row& r) { return sort(r.x, r.numbers[0], r.numbers[1] != 0).values; }},
      {"argsort", [](const Row& r) { return argsort(r.x, r.numbers[0], r.numbers[1] != 0); }},
      {"topk",
       [](const Row& r) {
         return topk(r.x, r.numbers[1], {.axis = r.numbers[0], .largest = r.numbers[2] != 0}).values;
       }},
      {"unique", [](const Row& r) { return unique(r.x).values; }},
      {"unique_counts", [](const Row& r) { return unique(r.x, {.counts = true}).counts; }},
      {"unique_inverse", [](const Row& r) { return unique(r.x, {.inverse = true}).inverse; }},
      {"searchsorted",
       [](const Row& r) {
         return searchsorted(from_vector<float>({-1, -1, -0.5, 0.5, 0.5, 1}, {6}), r.x, r.numbers[0] != 0);
       }},
      {"nonzero", [](const Row& r) { return nonzero(r.x); }},
  };
  return table;
}

TEST(IndexingGrid, EveryResultIsThatOfPyTorch) {
  std::ifstream in(source_dir() / "tests" / "golden" / "indexing.txt");
  ASSERT_TRUE(in.good());
  std::map<std::string, int> seen;
  for (std::string line; std::getline(in, line);) {
    const std::string head = line.substr(0, line.find('='));
    SCOPED_TRACE(head);
    const Row row = parse(line);
    const auto call = calls().find(row.op);
    ASSERT_NE(call, calls().end());
    ++seen[row.op];
    EXPECT_TRUE(near(to_array(call->second(row)), row.want, 0));
    // The same through an input that is not row-major.
    if (row.x.rank() < 2) continue;
    Row strided = row;
    strided.x = transpose(clone(transpose(row.x, 0, 1)), 0, 1);
    EXPECT_TRUE(near(to_array(call->second(strided)), row.want, 0)) << "strided";
  }
  for (const auto& [op, call] : calls()) EXPECT_GE(seen[op], 9) << op;
}

/// Python's rule, counted out one element at a time.
std::vector<int64_t> counted(std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step,
                             int64_t n) {
  const int64_t first = step > 0 ? 0 : -1, last = step > 0 ? n : n - 1;
  const auto place = [&](int64_t i) { return std::min(std::max(i < 0 ? i + n : i, first), last); };
  std::vector<int64_t> found;
  const int64_t end = stop ? place(*stop) : step > 0 ? n : -1;
  for (int64_t i = start ? place(*start) : step > 0 ? 0 : n - 1; step > 0 ? i < end : i > end; i += step)
    found.push_back(i);
  return found;
}

TEST(IndexingGrid, SlicesGoForwardsAndBackwardsAsInPython) {
  for (const int64_t n : {0, 1, 4, 5})
    for (const int64_t step : {-7, -3, -2, -1, 1, 2, 3, 7})
      for (int64_t i = -7; i <= 7; ++i)
        for (int64_t j = -7; j <= 7; ++j) {
          const std::optional<int64_t> start = i == 7 ? std::nullopt : std::optional(i),
                                       stop = j == 7 ? std::nullopt : std::optional(j);
          ASSERT_EQ(index(arange(n), {Slice{start, stop, step}}).to_vector<int64_t>(),
                    counted(start, stop, step, n))
              << i << ":" << j << ":" << step << " of " << n;
        }
  EXPECT_EQ(index_put(arange(4), {Slice{{}, {}, -2}}, from_vector<int64_t>({7, 8}, {2})).to_vector<int64_t>(),
            (std::vector<int64_t>{0, 8, 2, 7}));
  EXPECT_NE(error_of([] {
              assign(index(arange(4), {Slice{{}, {}, -1}}), zeros({4}, DType::i64));
            }).find("index()"),
            std::string::npos);
}

TEST(IndexingGrid, MediansAndQuantilesAreNanWhereOneIsAmongTheElements) {
  const double nan = std::nan("");
  const Tensor x = to_tensor(Array({3, 3}, {1, nan, 2, 3, 1, 2, 5, nan, nan}), DType::f32);
  const Sorted middle = median(x, 1);
  EXPECT_TRUE(near(to_array(middle.values), Array({3}, {nan, 2, nan}), 0));
  EXPECT_EQ(middle.indices.to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 1}));
  EXPECT_TRUE(std::isnan(median(x).item<float>()));
  EXPECT_TRUE(near(to_array(quantile(x, 0.25, 1)), Array({3}, {nan, 1.5, nan}), 0));
  EXPECT_TRUE(std::isnan(quantile(x, 0).item<float>()));
}

TEST(IndexingGrid, EqualElementsShareTheGradientOfTheMedianOfAll) {
  Tensor x = from_vector<float>({3, 1, 2, 2, 5, 0}, {2, 3}).set_requires_grad();
  backward(median(x));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 0, 0.5, 0.5, 0, 0}));
}

TEST(IndexingGrid, ProductsByIndexHaveTheGradientOfTheOthersAlsoWhereElementsAreZero) {
  Tensor x = from_vector<double>({2, 0, 0, 5}, {4}).set_requires_grad(),
         source = from_vector<double>({3, 0, 4, 7, 0, 2}, {6}).set_requires_grad();
  const Tensor at = from_vector<int64_t>({0, 0, 1, 1, 2, 3}, {6});
  const Tensor y = scatter_reduce(x, 0, at, source, ScatterReduction::prod);
  EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{0, 0, 0, 10}));
  backward(sum(y));
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 28, 0, 2}));
  EXPECT_EQ(source.grad().to_vector<double>(), (std::vector<double>{0, 6, 0, 0, 0, 5}));
}

TEST(IndexingGrid, EqualWinnersByIndexShareTheGradient) {
  Tensor x = from_vector<double>({2, 1}, {2}).set_requires_grad(),
         source = from_vector<double>({2, 2, 3, 0}, {4}).set_requires_grad();
  const Tensor at = from_vector<int64_t>({0, 0, 1, 1}, {4});
  backward(sum(scatter_reduce(x, 0, at, source, ScatterReduction::amax)));
  EXPECT_TRUE(near(to_array(x.grad()), Array({2}, {1. / 3, 0}), 1e-12));
  EXPECT_TRUE(near(to_array(source.grad()), Array({4}, {1. / 3, 1. / 3, 1, 0}), 1e-12));
}

TEST(IndexingGrid, ReductionsByIndexOfIntegersAndNan) {
  const Tensor x = from_vector<int8_t>({7, -7}, {2}), s = from_vector<int8_t>({100, 100, -8, -8}, {4});
  const Tensor at = from_vector<int64_t>({0, 0, 1, 1}, {4});
  EXPECT_EQ(to_array(scatter_reduce(x, 0, at, s, ScatterReduction::mean)).values,
            (std::vector<double>{69, -8}));  // rounded down, of sums that i8 does not hold
  EXPECT_EQ(to_array(scatter_reduce(x, 0, at, s, ScatterReduction::amin, false)).values,
            (std::vector<double>{100, -8}));
  const Tensor y = from_vector<float>({std::nanf(""), 1, 5}, {3});
  const Tensor most =
      scatter_reduce(ones({2}), 0, from_vector<int64_t>({0, 1, 0}, {3}), y, ScatterReduction::amax);
  EXPECT_TRUE(near(to_array(most), Array({2}, {std::nan(""), 1}), 0));
}

}  // namespace
}  // namespace tandem::testing
