// Cases of the factorisations. Inputs are turned into matrices that can be factored by the call itself, so that golden
// rows and differences see the same function. Vectors whose sign is free are compared by their absolute values.
#include "tandem/ops/linalg.h"

#include <algorithm>
#include <cmath>

#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/shape.h"
#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

using In = std::span<const Tensor>;
using Values = std::vector<double>;

// ---- tensors

Tensor identity_like(const Tensor& x) {
  const Tensor i = arange(x.size(-1), DType::i64, x.device());
  return cast(equal(unsqueeze(i, 1), i), x.dtype());
}
/// Far from singular: x + 3 I.
Tensor regular(const Tensor& x) { return x + identity_like(x) * 3.0; }
/// x · xᵀ + I.
Tensor positive(const Tensor& x) { return matmul(x, transpose(x)) + identity_like(x); }
/// x + xᵀ with 0, 2, 4 … on the diagonal: eigenvalues that lie apart.
Tensor symmetric(const Tensor& x) {
  return x + transpose(x) +
         identity_like(x) * cast(arange(x.size(-1), DType::i64, x.device()) * 2, x.dtype());
}
Tensor joined(std::vector<Tensor> parts) {
  for (Tensor& t : parts) t = reshape(t, {t.size()});
  return concat(parts);
}

// ---- the same over plain arrays, one matrix at a time

double& at(Values& a, Dim columns, Dim i, Dim j) { return a[static_cast<size_t>(i * columns + j)]; }
double at(const Values& a, Dim columns, Dim i, Dim j) { return a[static_cast<size_t>(i * columns + j)]; }

Values product(const Values& a, const Values& b, Dim m, Dim k, Dim n) {
  Values c(static_cast<size_t>(m * n), 0.);
  for (Dim i = 0; i < m; ++i)
    for (Dim j = 0; j < n; ++j)
      for (Dim p = 0; p < k; ++p) at(c, n, i, j) += at(a, k, i, p) * at(b, n, p, j);
  return c;
}
Values flipped(const Values& a, Dim m, Dim n) {
  Values t(a.size());
  for (Dim i = 0; i < m; ++i)
    for (Dim j = 0; j < n; ++j) at(t, m, j, i) = at(a, n, i, j);
  return t;
}
Values plain_regular(Values a, Dim n) {
  for (Dim i = 0; i < n; ++i) at(a, n, i, i) += 3;
  return a;
}
Values plain_positive(const Values& x, Dim n) {
  Values a = product(x, flipped(x, n, n), n, n, n);
  for (Dim i = 0; i < n; ++i) at(a, n, i, i) += 1;
  return a;
}
Values plain_symmetric(const Values& x, Dim n) {
  Values a = flipped(x, n, n);
  for (size_t i = 0; i < a.size(); ++i) a[i] += x[i];
  for (Dim i = 0; i < n; ++i) at(a, n, i, i) += 2. * static_cast<double>(i);
  return a;
}

/// Gauss-Jordan with pivots: b becomes a⁻¹ · b; returns the determinant of a.
double eliminate(Values a, Dim n, Values& b, Dim columns) {
  double determinant = 1;
  for (Dim k = 0; k < n; ++k) {
    Dim pivot = k;
    for (Dim i = k; i < n; ++i)
      if (std::abs(at(a, n, i, k)) > std::abs(at(a, n, pivot, k))) pivot = i;
    if (pivot != k) {
      determinant = -determinant;
      for (Dim j = 0; j < n; ++j) std::swap(at(a, n, k, j), at(a, n, pivot, j));
      for (Dim j = 0; j < columns; ++j) std::swap(at(b, columns, k, j), at(b, columns, pivot, j));
    }
    const double head = at(a, n, k, k);
    determinant *= head;
    for (Dim j = 0; j < n; ++j) at(a, n, k, j) /= head;
    for (Dim j = 0; j < columns; ++j) at(b, columns, k, j) /= head;
    for (Dim i = 0; i < n; ++i) {
      if (i == k) continue;
      const double factor = at(a, n, i, k);
      for (Dim j = 0; j < n; ++j) at(a, n, i, j) -= factor * at(a, n, k, j);
      for (Dim j = 0; j < columns; ++j) at(b, columns, i, j) -= factor * at(b, columns, k, j);
    }
  }
  return determinant;
}

Values unit(Dim n) {
  Values a(static_cast<size_t>(n * n), 0.);
  for (Dim i = 0; i < n; ++i) at(a, n, i, i) = 1;
  return a;
}
Values inverse_of(const Values& a, Dim n) {
  Values b = unit(n);
  eliminate(a, n, b, n);
  return b;
}
Values lower_factor(const Values& a, Dim n) {
  Values l(a.size(), 0.);
  for (Dim i = 0; i < n; ++i)
    for (Dim j = 0; j <= i; ++j) {
      double rest = at(a, n, i, j);
      for (Dim p = 0; p < j; ++p) rest -= at(l, n, i, p) * at(l, n, j, p);
      at(l, n, i, j) = i == j ? std::sqrt(rest) : rest / at(l, n, j, j);
    }
  return l;
}
/// q then r, by reflections one after the other.
Values qr_of(Values a, Dim m, Dim n) {
  const Dim k = std::min(m, n);
  Values q = unit(m);
  for (Dim j = 0; j < k; ++j) {
    double below = 0, squares = 0;
    for (Dim i = j; i < m; ++i) {
      squares += at(a, n, i, j) * at(a, n, i, j);
      if (i > j) below += at(a, n, i, j) * at(a, n, i, j);
    }
    if (below == 0) continue;
    const double alpha = at(a, n, j, j), beta = alpha < 0 ? std::sqrt(squares) : -std::sqrt(squares);
    Values v(static_cast<size_t>(m), 0.);
    double length = 0;
    for (Dim i = j; i < m; ++i) v[static_cast<size_t>(i)] = at(a, n, i, j);
    v[static_cast<size_t>(j)] -= beta;
    for (const double x : v) length += x * x;
    const auto reflect_columns = [&](Values& x, Dim columns) {
      for (Dim c = 0; c < columns; ++c) {
        double dot = 0;
        for (Dim i = 0; i < m; ++i) dot += v[static_cast<size_t>(i)] * at(x, columns, i, c);
        for (Dim i = 0; i < m; ++i) at(x, columns, i, c) -= 2 * dot / length * v[static_cast<size_t>(i)];
      }
    };
    reflect_columns(a, n);
    reflect_columns(q, m);
  }
  Values out;
  for (Dim i = 0; i < m; ++i)
    for (Dim j = 0; j < k; ++j) out.push_back(at(q, m, j, i));
  for (Dim i = 0; i < k; ++i)
    for (Dim j = 0; j < n; ++j) out.push_back(j < i ? 0 : at(a, n, i, j));
  return out;
}
/// Eigenvalues in rising order and vectors (columns) of a symmetric matrix by Jacobi's rotations.
void eigen(Values a, Dim n, Values& values, Values& vectors) {
  Values v = unit(n);
  for (int sweep = 0; sweep < 60; ++sweep)
    for (Dim p = 0; p < n; ++p)
      for (Dim q = p + 1; q < n; ++q) {
        if (at(a, n, p, q) == 0) continue;
        const double angle = 0.5 * std::atan2(2 * at(a, n, p, q), at(a, n, q, q) - at(a, n, p, p));
        const double c = std::cos(angle), s = std::sin(angle);
        for (Dim i = 0; i < n; ++i) {
          const double x = at(a, n, i, p), y = at(a, n, i, q);
          at(a, n, i, p) = c * x - s * y;
          at(a, n, i, q) = s * x + c * y;
          const double vx = at(v, n, i, p), vy = at(v, n, i, q);
          at(v, n, i, p) = c * vx - s * vy;
          at(v, n, i, q) = s * vx + c * vy;
        }
        for (Dim i = 0; i < n; ++i) {
          const double x = at(a, n, p, i), y = at(a, n, q, i);
          at(a, n, p, i) = c * x - s * y;
          at(a, n, q, i) = s * x + c * y;
        }
      }
  std::vector<Dim> order;
  for (Dim i = 0; i < n; ++i) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](Dim x, Dim y) { return at(a, n, x, x) < at(a, n, y, y); });
  values.clear();
  vectors = v;
  for (Dim j = 0; j < n; ++j) {
    values.push_back(at(a, n, order[static_cast<size_t>(j)], order[static_cast<size_t>(j)]));
    for (Dim i = 0; i < n; ++i) at(vectors, n, i, j) = at(v, n, i, order[static_cast<size_t>(j)]);
  }
}
/// Singular values (falling), |u|, |vh|.
Values svd_of(const Values& a, Dim m, Dim n) {
  const Dim k = std::min(m, n);
  Values values, v, out, u(static_cast<size_t>(m * k)), vh(static_cast<size_t>(k * n));
  eigen(product(flipped(a, m, n), a, n, m, n), n, values, v);
  const Values turned = product(a, v, m, n, n);
  for (Dim j = 0; j < k; ++j) {
    const Dim from = n - 1 - j;
    const double s = std::sqrt(values[static_cast<size_t>(from)]);
    out.push_back(s);
    for (Dim i = 0; i < m; ++i) at(u, k, i, j) = std::abs(at(turned, n, i, from) / s);
    for (Dim i = 0; i < n; ++i) at(vh, n, j, i) = std::abs(at(v, n, i, from));
  }
  out.insert(out.end(), u.begin(), u.end());
  out.insert(out.end(), vh.begin(), vh.end());
  return out;
}

/// A reference that works matrix by matrix and lays the results end to end.
CaseReference each(const std::function<Values(const std::vector<Values>&, Dim m, Dim n)>& one,
                   const std::function<Dims(std::span<const Array>)>& shape) {
  return [=](std::span<const Array> in) {
    Array out(shape(in));
    const int rank = in[0].shape.rank();
    const Dim m = in[0].shape[rank - 2], n = in[0].shape[rank - 1];
    const int64_t batch = in[0].size() ? in[0].size() / (m * n) : 0;
    Values all;
    for (int64_t b = 0; b < batch; ++b) {
      std::vector<Values> parts;
      for (const Array& x : in) {
        const auto size = x.size() / batch;
        parts.emplace_back(x.values.begin() + b * size, x.values.begin() + (b + 1) * size);
      }
      const Values result = one(parts, m, n);
      all.insert(all.end(), result.begin(), result.end());
    }
    out.values = all;
    return out;
  };
}
Dims first_shape(std::span<const Array> in) { return in[0].shape; }
Dims second_shape(std::span<const Array> in) { return in[1].shape; }

OpCase make(const std::string& name, const std::vector<Dims>& shapes, CaseCall call,
            CaseReference reference) {
  OpCase op_case;
  op_case.name = name;
  for (const Dims& shape : shapes) op_case.inputs.push_back({shape});
  op_case.call = std::move(call);
  op_case.reference = std::move(reference);
  op_case.dtypes = {};
  op_case.tolerance = 2e-5;
  return op_case;
}

Tensor of(const Dims& shape, DType dtype = DType::f32) { return zeros(shape, dtype); }

}  // namespace

void add_linalg_cases(std::vector<OpCase>& cases) {
  const OpCase factor = make(
      "cholesky", {{4, 4}}, [](In in) { return cholesky(positive(in[0])); },
      each([](const std::vector<Values>& x, Dim n, Dim) { return lower_factor(plain_positive(x[0], n), n); },
           first_shape));
  cases.push_back(factor);
  cases.push_back(with_shapes(factor, "cholesky/batch", {{2, 2, 3, 3}}));
  cases.push_back(with_shapes(factor, "cholesky/one", {{1, 1}}));
  cases.push_back(with_shapes(factor, "cholesky/empty", {{0, 3, 3}}));
  cases.push_back(with_shapes(factor, "cholesky/nothing", {{0, 0}}));
  OpCase upper = factor;
  upper.name = "cholesky/upper";
  upper.call = [](In in) { return cholesky(positive(in[0]), true); };
  upper.reference = each([](const std::vector<Values>& x, Dim n,
                            Dim) { return flipped(lower_factor(plain_positive(x[0], n), n), n, n); },
                         first_shape);
  cases.push_back(upper);

  const auto solved = [](const std::vector<Values>& x, Dim n, Dim) {
    Values b = x[1];
    eliminate(plain_regular(x[0], n), n, b, static_cast<Dim>(b.size()) / n);
    return b;
  };
  const OpCase system = make(
      "solve", {{4, 4}, {4, 3}}, [](In in) { return solve(regular(in[0]), in[1]); },
      each(solved, second_shape));
  cases.push_back(system);
  cases.push_back(with_shapes(system, "solve/vector", {{4, 4}, {4}}));
  cases.push_back(with_shapes(system, "solve/batch", {{3, 2, 2}, {3, 2, 4}}));
  cases.push_back(with_shapes(system, "solve/empty", {{0, 2, 2}, {0, 2, 4}}));

  for (int bits = 0; bits < 8; ++bits) {
    const bool upper_part = bits & 1, right = bits & 2, ones = bits & 4;
    const auto triangle = [=](const Values& x, Dim n) {
      Values a = plain_regular(x, n);
      for (Dim i = 0; i < n; ++i)
        for (Dim j = 0; j < n; ++j) {
          if (upper_part ? j < i : j > i) at(a, n, i, j) = 0;
          if (ones && i == j) at(a, n, i, j) = 1;
        }
      return a;
    };
    OpCase op_case = make(
        str("triangular_solve", upper_part ? "/upper" : "/lower", right ? "_right" : "", ones ? "_unit" : ""),
        {{3, 3}, {right ? 2 : 3, right ? 3 : 2}},
        [=](In in) {
          return triangular_solve(regular(in[0]), in[1],
                                  {.upper = upper_part, .left = !right, .unit_diagonal = ones});
        },
        each(
            [=](const std::vector<Values>& x, Dim n, Dim) {
              const Dim other = static_cast<Dim>(x[1].size()) / n;
              const Values a = triangle(x[0], n);
              Values b = right ? flipped(x[1], other, n) : x[1];
              eliminate(right ? flipped(a, n, n) : a, n, b, other);
              return right ? flipped(b, n, other) : b;
            },
            second_shape));
    cases.push_back(op_case);
    if (bits == 0) {
      cases.push_back(with_shapes(op_case, "triangular_solve/batch", {{2, 3, 3}, {2, 3, 4}}));
      cases.push_back(with_shapes(op_case, "triangular_solve/empty", {{0, 3, 3}, {0, 3, 4}}));
      cases.push_back(with_shapes(op_case, "triangular_solve/vector", {{3, 3}, {3}}));
    }
  }

  const OpCase inverted = make(
      "inverse", {{2, 4, 4}}, [](In in) { return inverse(regular(in[0])); },
      each([](const std::vector<Values>& x, Dim n, Dim) { return inverse_of(plain_regular(x[0], n), n); },
           first_shape));
  cases.push_back(inverted);
  cases.push_back(with_shapes(inverted, "inverse/empty", {{0, 4, 4}}));

  const auto batch_shape = [](std::span<const Array> in) {
    return Dims(std::span<const Dim>(in[0].shape.data(), static_cast<size_t>(in[0].shape.rank() - 2)));
  };
  const auto determinant = [](const std::vector<Values>& x, Dim n) {
    Values nothing;
    return eliminate(x[0], n, nothing, 0);
  };
  OpCase size = make(
      "det", {{3, 4, 4}}, [](In in) { return det(in[0]); },
      each([=](const std::vector<Values>& x, Dim n, Dim) { return Values{determinant(x, n)}; }, batch_shape));
  cases.push_back(size);
  OpCase single = with_shapes(size, "det/matrix", {{3, 3}});
  single.call = [](In in) { return det(regular(in[0])); };
  single.reference = each([=](const std::vector<Values>& x, Dim n,
                              Dim) { return Values{determinant({plain_regular(x[0], n)}, n)}; },
                          batch_shape);
  cases.push_back(single);
  cases.push_back(with_shapes(size, "det/empty", {{0, 3, 3}}));
  OpCase log_size = make(
      "slogdet", {{3, 4, 4}},
      [](In in) {
        const SlogDet d = slogdet(in[0]);
        return d.logabsdet * 2.0 + d.sign;
      },
      each(
          [=](const std::vector<Values>& x, Dim n, Dim) {
            return Values{2 * std::log(std::abs(determinant(x, n))) + (determinant(x, n) < 0 ? -1 : 1)};
          },
          batch_shape));
  cases.push_back(log_size);
  cases.push_back(with_shapes(log_size, "slogdet/empty", {{0, 3, 3}}));

  const auto flat = [](Dim lists) {  // an (m, k) and a (k, n) matrix, and so many lists of k
    return [=](std::span<const Array> in) {
      const Dim m = in[0].shape[in[0].shape.rank() - 2], n = in[0].shape.back(), k = std::min(m, n);
      return in[0].size() ? Dims{k * (m + n + lists)} : Dims{0};
    };
  };
  for (const Dims& shape : {Dims{5, 3}, Dims{3, 5}, Dims{4, 4}, Dims{0, 2, 2}}) {
    const char* what = shape.rank() == 3     ? "/empty"
                       : shape[0] > shape[1] ? "/tall"
                       : shape[0] < shape[1] ? "/wide"
                                             : "";
    cases.push_back(make(
        str("qr", what), {shape},
        [](In in) {
          const Qr f = qr(in[0]);
          return joined({f.q, f.r});
        },
        each([](const std::vector<Values>& x, Dim m, Dim n) { return qr_of(x[0], m, n); }, flat(0))));
    OpCase singular = make(
        str("svd", what), {shape},
        [](In in) {
          const Svd f = svd(in[0]);
          return joined({f.s, abs(f.u), abs(f.vh)});
        },
        each([](const std::vector<Values>& x, Dim m, Dim n) { return svd_of(x[0], m, n); }, flat(1)));
    singular.tolerance = 4e-5;
    singular.tolerance64 = 1e-11;  // the reference squares the matrix
    cases.push_back(singular);
  }
  for (const Dims& shape : {Dims{4, 4}, Dims{0, 3, 3}})
    cases.push_back(make(
        shape.rank() == 3 ? "eigh/empty" : "eigh", {shape},
        [](In in) {
          const Eigh e = eigh(symmetric(in[0]));
          return joined({e.values, abs(e.vectors)});
        },
        each(
            [](const std::vector<Values>& x, Dim n, Dim) {
              Values values, vectors;
              eigen(plain_symmetric(x[0], n), n, values, vectors);
              for (const double v : vectors) values.push_back(std::abs(v));
              return values;
            },
            [](std::span<const Array> in) {
              return in[0].size() ? Dims{in[0].size() + in[0].shape.back()} : Dims{0};
            })));
  OpCase least = make(
      "lstsq", {{5, 3}, {5, 2}}, [](In in) { return lstsq(in[0], in[1]); },
      [](std::span<const Array> in) {
        const Values t = flipped(in[0].values, 5, 3);
        Array x({3, 2}, product(t, in[1].values, 3, 5, 2));
        eliminate(product(t, in[0].values, 3, 5, 3), 3, x.values, 2);
        return x;
      });
  least.tolerance64 = 1e-11;
  cases.push_back(least);
  OpCase most = make(
      "lstsq/wide", {{3, 5}, {3}}, [](In in) { return lstsq(in[0], in[1]); },
      [](std::span<const Array> in) {
        const Values t = flipped(in[0].values, 3, 5);
        Values y = in[1].values;
        eliminate(product(in[0].values, t, 3, 5, 3), 3, y, 1);
        return Array({5}, product(t, y, 5, 3, 1));
      });
  most.tolerance64 = 1e-11;
  cases.push_back(most);
  OpCase pseudo = make(
      "pinv", {{4, 3}}, [](In in) { return pinv(in[0]); },
      [](std::span<const Array> in) {
        const Values t = flipped(in[0].values, 4, 3);
        Array x({3, 4}, t);
        eliminate(product(t, in[0].values, 3, 4, 3), 3, x.values, 4);
        return x;
      });
  pseudo.tolerance = 4e-5;
  pseudo.tolerance64 = 1e-11;
  cases.push_back(pseudo);
}

void add_linalg_errors(std::vector<ErrorCase>& errors) {
  const std::pair<const char*, std::function<void(const Tensor&)>> squares[] = {
      {"cholesky", [](const Tensor& x) { cholesky(x); }},
      {"inverse", [](const Tensor& x) { inverse(x); }},
      {"det", [](const Tensor& x) { det(x); }},
      {"slogdet", [](const Tensor& x) { slogdet(x); }},
      {"eigh", [](const Tensor& x) { eigh(x); }},
      {"solve", [](const Tensor& x) { solve(x, of({3})); }},
      {"qr", [](const Tensor& x) { qr(x); }},
      {"svd", [](const Tensor& x) { svd(x); }},
      {"pinv", [](const Tensor& x) { pinv(x); }},
      {"lstsq", [](const Tensor& x) { lstsq(x, of({2})); }}};
  for (const auto& [name, call] : squares) {
    const std::string op = name;
    if (op != "qr" && op != "svd" && op != "pinv" && op != "lstsq")
      errors.push_back({op + "/square",
                        [call = call] {
                          call(of({2, 3}));
                        },
                        {op + ": ", "square", "(2, 3)"}});
    errors.push_back({op + "/rank", [call = call] { call(of({3})); }, {op + ": ", "two axes", "(3,)"}});
    errors.push_back({op + "/type",
                      [call = call] {
                        call(of({2, 2}, DType::f16));
                      },
                      {op + ": ", "f32 or f64", "f16"}});
    errors.push_back({op + "/undefined", [call = call] { call(Tensor()); }, {op + ": ", "undefined"}});
  }
  errors.push_back({"solve/rows", [] { solve(of({3, 3}), of({4, 2})); }, {"solve: ", "(3, 3)", "(4, 2)"}});
  errors.push_back({"solve/types",
                    [] {
                      solve(of({3, 3}), of({3}, DType::f64));
                    },
                    {"solve: ", "f32", "f64"}});
  errors.push_back({"lstsq/rows", [] { lstsq(of({3, 2}), of({4})); }, {"lstsq: ", "(3, 2)", "(4,)"}});
  errors.push_back({"triangular_solve/batches",
                    [] {
                      triangular_solve(of({2, 3, 3}), of({4, 3, 1}));
                    },
                    {"triangular_solve: "}});
  errors.push_back({"solve/singular",
                    [] {
                      solve(concat({unsqueeze(identity_like(of({2, 2})), 0), of({1, 2, 2})}), of({2}));
                    },
                    {"solve: ", "invertible", "column 0", "element 1", "pinv"}});
  errors.push_back({"inverse/singular", [] { inverse(ones({2, 2})); }, {"inverse: ", "column 1"}});
  errors.push_back({"cholesky/not_positive",
                    [] {
                      cholesky(concat({unsqueeze(identity_like(of({2, 2})), 0), ones({1, 2, 2})}));
                    },
                    {"cholesky: ", "positive definite", "order 2", "element 1", "identity"}});
  errors.push_back({"svd/nan", [] { svd(full({2, 2}, NAN)); }, {"svd: ", "NaN"}});
  errors.push_back({"eigh/nan", [] { eigh(full({2, 2}, INFINITY)); }, {"eigh: ", "finite"}});
}

}  // namespace tandem::testing
