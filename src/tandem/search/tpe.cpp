// Tree-structured Parzen estimators.
#include "tandem/search/tpe.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tandem/data/random.h"

namespace tandem::search {
namespace {

using Random = data::SampleRandom;
constexpr int64_t kEven = 0, kParzen = 1;  // streams of numbers

double even(const Parameter& p, Random& random) {
  if (!p.is_list()) return random.uniform();
  return static_cast<double>(random.below(static_cast<int64_t>(p.values.size())));
}

/// Of a normal distribution, the share below x.
double below(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

/// A mixture of kernels, one on each point and an even one, all of the same weight.
class Density {
 public:
  Density(const Space& space, std::vector<Point> points) : space_(space), points_(std::move(points)) {
    // Scott's rule for d dimensions, by how far the points lie apart, and not too narrow to find something new.
    const auto n = static_cast<double>(points_.size()), d = static_cast<double>(space.parameters.size());
    for (size_t i = 0; i < space.parameters.size(); ++i) {
      double sum = 0, squares = 0;
      for (const Point& point : points_) sum += point[i], squares += point[i] * point[i];
      const double deviation = n > 1 ? std::sqrt(std::max(0.0, squares / n - sum * sum / (n * n))) : 0.3;
      widths_.push_back(std::clamp(deviation * std::pow(std::max(n, 1.0), -1 / (d + 4)), 0.1, 0.3));
    }
    other_ = std::clamp(1.0 / std::max(n, 1.0), 0.1, 0.5);
  }

  /// One of the points, or none, with the same chance each; then every parameter near it, or evenly.
  Point draw(Random& random) const {
    const int64_t at = random.below(static_cast<int64_t>(points_.size()) + 1);
    Point out;
    for (size_t i = 0; i < space_.parameters.size(); ++i) {
      const Parameter& p = space_.parameters[i];
      out.push_back(at == static_cast<int64_t>(points_.size())
                        ? even(p, random)
                        : near(i, points_[static_cast<size_t>(at)][i], random));
    }
    return out;
  }

  /// The mean of the kernels, as the logarithm of a sum of exponentials: products over many parameters would vanish.
  double log_at(const Point& x) const {
    double even_part = 0;
    for (const Parameter& p : space_.parameters)
      if (p.is_list()) even_part -= std::log(static_cast<double>(p.values.size()));
    std::vector<double> terms = {even_part};
    for (const Point& point : points_) {
      double term = 0;
      for (size_t i = 0; i < x.size(); ++i) term += log_kernel(i, point[i], x[i]);
      terms.push_back(term);
    }
    const double most = *std::max_element(terms.begin(), terms.end());
    double sum = 0;
    for (const double term : terms) sum += std::exp(term - most);
    return most + std::log(sum / static_cast<double>(terms.size()));
  }

 private:
  /// A number of 0 … 1 around `centre`, or a value of a list: the same one, or with probability other_ another (of an
  /// ordered list a neighbour, mostly).
  double near(size_t parameter, double centre, Random& random) const {
    const Parameter& p = space_.parameters[parameter];
    if (!p.is_list()) {
      for (int i = 0; i < 100; ++i)
        if (const double x = centre + widths_[parameter] * random.normal(); x >= 0 && x <= 1) return x;
      return centre;
    }
    const double u = random.uniform();
    double sum = 0;
    for (size_t i = 0; i < p.values.size(); ++i) {
      sum += std::exp(log_kernel(parameter, centre, static_cast<double>(i)));
      if (u < sum) return static_cast<double>(i);
    }
    return centre;
  }

  double log_kernel(size_t parameter, double centre, double x) const {
    const Parameter& p = space_.parameters[parameter];
    if (!p.is_list()) {
      const double width = widths_[parameter];
      const double z = (x - centre) / width;
      // The kernel is cut off at 0 and 1: what is left inside is scaled to 1.
      const double inside = below((1 - centre) / width) - below(-centre / width);
      return -0.5 * z * z - std::log(width * std::sqrt(2 * 3.14159265358979323846) * inside);
    }
    const auto count = static_cast<double>(p.values.size());
    if (count == 1) return 0;
    if (p.scale == Scale::choice) return std::log(x == centre ? 1 - other_ : other_ / (count - 1));
    // An ordered list: the others share other_, each half as much as the one a place nearer.
    double sum = 0;
    for (double i = 0; i < count; ++i)
      if (i != centre) sum += std::pow(0.5, std::abs(i - centre));
    return std::log(x == centre ? 1 - other_ : other_ * std::pow(0.5, std::abs(x - centre)) / sum);
  }

  const Space& space_;
  std::vector<Point> points_;
  std::vector<double> widths_;
  double other_ = 0;
};

}  // namespace

Point random_point(const Space& space, uint64_t seed, int64_t number) {
  Random random(seed, kEven, number);
  Point out;
  for (const Parameter& p : space.parameters) out.push_back(even(p, random));
  return out;
}

// Draws where good points are dense and keeps the candidate whose chance among the good ones is largest against that
// among the rest. Seed and number decide all draws, so that a search can be repeated.
Point tpe_point(const Space& space, const std::vector<Point>& best_first, int64_t number,
                const ProposalOptions& options) {
  Random random(options.seed, kParzen, number);
  if (best_first.size() < options.first || random.chance(options.explore))
    return random_point(space, options.seed, number);
  const auto share = options.good * static_cast<double>(best_first.size());
  const auto good = std::min(static_cast<ptrdiff_t>(std::clamp(std::ceil(share), 2.0, 25.0)),
                             static_cast<ptrdiff_t>(best_first.size()));
  const Density promising(space, {best_first.begin(), best_first.begin() + good});
  const Density others(space, {best_first.begin() + good, best_first.end()});
  Point best;
  double best_score = -std::numeric_limits<double>::infinity();
  for (int i = 0; i < options.candidates; ++i) {
    Point candidate = promising.draw(random);
    const double score = promising.log_at(candidate) - others.log_at(candidate);
    if (score <= best_score) continue;
    best_score = score;
    best = std::move(candidate);
  }
  return best;
}

}  // namespace tandem::search
