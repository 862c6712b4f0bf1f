#include "tests/support/control_flow_forms.h"

#include <gtest/gtest.h>

#include "tandem/core/rng.h"
#include "tandem/core/tape.h"
#include "tandem/graph/compile.h"
#include "tandem/graph/cond.h"
#include "tandem/graph/scan.h"
#include "tandem/graph/while_loop.h"
#include "tandem/ops/create.h"
#include "tandem/ops/dropout.h"
#include "tandem/ops/index.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/shape.h"
#include "tests/support/values.h"

namespace tandem::testing {

AroundForm::AroundForm(Device device)
    : w(make({5, 5}, 1, device).set_requires_grad()),
      u(make({5, 5}, 2, device).set_requires_grad()),
      v(make({5}, 3, device).set_requires_grad()),
      memory(make({5}, 4, device)),
      table(to(from_vector<float>({1, 2, 3, 4, -1, 6}, {6}), device)) {}
Tensor AroundForm::make(const Dims& shape, uint32_t salt, Device device) {
  return to(to_tensor(hash_array(shape, salt), DType::f32), device);
}
Tensor AroundForm::number(double value) const { return full({}, value, DType::i64, w.device()); }
void AroundForm::note(const Tensor& by) const {
  const NoGrad off;
  assign(memory, memory * 0.5 + by.detach());
}

// A loop that computes its runs again calls its functions later: they hold what they use.
std::vector<ControlForm> ControlForm::all(bool recompute) {
  const auto below = [](const Tensor& n) { return [n](const List& s) { return less(s[0], n); }; };
  const auto cell = [](const AroundForm& a, const Tensor& s) {
    return tanh(matmul(s, a.w)) * 0.5 + matmul(s * 0.25, a.u);
  };
  const auto bounded = [recompute](int64_t most) {
    return WhileOptions{.at_most = most, .recompute = recompute};
  };
  return {
      {"branch",
       [](const AroundForm& a, const Tensor& x, const Tensor& n) {
         const Tensor h = matmul(x, a.w);
         return List{cond(
             greater(n, 2),
             [=] {
               a.note(a.memory + 1);
               return dropout(tanh(h), 0.5) * a.v;
             },
             [=] { return matmul(h, a.u); })};
       }},
      {"branches in a branch",
       [](const AroundForm& a, const Tensor& x, const Tensor& n) {
         const Tensor y = cond(
             less(n, 4),
             [=] {
               return cond(
                   less(n, 2),
                   [=] {
                     return x * a.v + uniform({3, 5}, 0, 1, DType::f32, x.device());
                   },
                   [=] { return matmul(x, a.w) * a.memory; });
             },
             [=] { return sigmoid(x) * a.v; });
         return List{y, cond(
                            equal(n, 3), [=] { return y * y; }, [=] { return y + a.v; })};
       }},
      {"loop without a bound",
       [=](const AroundForm& a, const Tensor& x, const Tensor& n) {
         const List s =
             while_loop(below(n),
                        [=](const List& t) {
                          a.note(a.memory * 0.25);
                          return List{t[0] + 1, t[2], t[1] + t[2] * 0.5, t[3], cast(t[2], DType::bf16)};
                        },
                        {a.number(0), x, x * 2.0, a.v.detach(), cast(x, DType::bf16)});
         return List(s.begin(), s.end());
       },
       false},
      {"loop with a bound",
       [=](const AroundForm& a, const Tensor& x, const Tensor& n) {
         List s = while_loop(
             below(n),
             [=](const List& t) {
               return List{t[0] + 1, dropout(cell(a, t[1]), 0.25) + t[1] * 0.5, t[1] * t[2]};
             },
             {a.number(0), x * a.v, x}, bounded(5));
         s.push_back(uniform({3}, 0, 1, DType::f32, x.device()));
         return s;
       }},
      {"loop that stops by what it computes",
       [=](const AroundForm& a, const Tensor& x, const Tensor& n) {
         return while_loop([](const List& s) { return greater(sum(s[0] * s[0]), 1); },
                           [=](const List& s) { return List{s[0] * sigmoid(a.v) * 0.5}; },
                           {x * cast(n + 1, DType::f32)}, bounded(7));
       }},
      {"loop in a loop",
       [=](const AroundForm& a, const Tensor& x, const Tensor& n) {
         return while_loop(
             below(n),
             [=](const List& s) {
               const List inner = while_loop([=](const List& t) { return less_equal(t[0], s[0]); },
                                             [=](const List& t) {
                                               return List{t[0] + 1, dropout(t[1] * a.v, 0.5) + t[1] * 0.5};
                                             },
                                             {a.number(0), s[1]}, bounded(3));
               return List{s[0] + 1, inner[1] + dropout(matmul(inner[1], a.w), 0.5)};
             },
             {a.number(0), x}, bounded(4));
       }},
      {"branch in a loop",
       [=](const AroundForm& a, const Tensor& x, const Tensor& n) {
         return while_loop(
             below(n),
             [=](const List& s) {
               const Tensor odd = equal(remainder(s[0], 2), 1);
               return List{s[0] + 1, cond(
                                         odd,
                                         [=] {
                                           if (!recompute) a.note(a.memory * 0.25);
                                           return dropout(s[1] * a.v, 0.25);
                                         },
                                         [=] { return cell(a, s[1]) + s[1]; })};
             },
             {a.number(0), x}, bounded(5));
       }},
      {"loop in a branch",
       [=](const AroundForm& a, const Tensor& x, const Tensor& n) {
         return List{cond(
             greater(n, 1),
             [=] {
               return while_loop(
                   below(n),
                   [=](const List& s) {
                     return List{s[0] + 1, cell(a, s[1]) + s[1]};
                   },
                   {a.number(0), x}, bounded(4))[1];
             },
             [=] { return x * a.v; })};
       }},
      {"scan of branches and loops, and a loop of scans",
       [=](const AroundForm& a, const Tensor& x, const Tensor& n) {
         const ScanResult made = scan(
             [=](const List& s, const List& in) {
               const Tensor h = cond(
                   greater(n, 2), [=] { return dropout(s[0] * a.v, 0.5); }, [=] { return s[0] + in[0]; });
               const Tensor g = while_loop(
                   below(n),
                   [=](const List& t) {
                     return List{t[0] + 1, dropout(t[1], 0.25) * a.v + in[0]};
                   },
                   {a.number(0), h}, bounded(2))[1];
               return ScanStep{{g}, {g * in[0]}};
             },
             {a.v * 2.0}, {x}, {.recompute = recompute});
         List out = while_loop(
             below(n),
             [=](const List& s) {
               return List{s[0] + 1, scan(
                                         [=](const List& t, const List& in) {
                                           return ScanStep{{dropout(t[0] * 0.5 + in[0], 0.25)}, {}};
                                         },
                                         {s[1]}, {x * a.v}, {.recompute = recompute})
                                         .state[0]};
             },
             {a.number(0), made.state[0]}, bounded(3));
         out.push_back(made.outputs[0]);
         return out;
       }},
      {"condition that looks into a table as long as the bound",
       [=](const AroundForm& a, const Tensor& x, const Tensor& n) {
         return while_loop(
             [=](const List& s) {
               return greater(index_select(a.table, 0, reshape(s[0], {1})) + cast(n, DType::f32), 0);
             },
             [=](const List& s) {
               return List{s[0] + 1, s[1] * a.v};
             },
             {a.number(0), x}, bounded(6));
       }},
  };
}

ControlForm::Seen ControlForm::run(Device device, Way way) const {
  const AroundForm around(device);
  const List leaves = {around.w, around.u, around.v};
  manual_seed(7);
  const TensorFunction forward = [&](const List& in) { return code(around, in[0], in[1]); };
  const auto with_gradients = [&](const TensorFunction& f) -> TensorFunction {
    if (!has_gradient)
      return [f](const List& in) {
        const NoGrad off;
        return f(in);
      };
    return [f, &leaves](const List& in) {
      List out = f(in);
      Tensor total;
      for (Tensor& y : out) {
        if (y.requires_grad()) total = total.defined() ? total + sum(y * y) : sum(y * y);
        y = y.detach();
      }
      for (const Tensor& g : grad(total, leaves, {}, {}, true)) out.push_back(g);
      return out;
    };
  };
  Compiled inner = compile(forward), whole = compile(with_gradients(forward));
  const TensorFunction step = way == Way::inner   ? with_gradients([&](const List& in) { return inner(in); })
                              : way == Way::whole ? TensorFunction([&](const List& in) { return whole(in); })
                                                  : with_gradients(forward);
  Seen seen;
  constexpr int64_t kNumbers[kCalls] = {3, 0, 5, 1, 9, 2, 4};
  for (uint32_t call = 0; const int64_t n : kNumbers) {
    const List in = {AroundForm::make({3, 5}, 10 + call++, device), around.number(static_cast<double>(n))};
    List out = step(in);
    out.push_back(clone(around.memory));
    seen.calls.push_back(std::move(out));
  }
  const std::vector<GraphReport> reports = (way == Way::inner ? inner : whole).reports();
  seen.traces = reports.size();
  if (!reports.empty()) seen.executor = reports[0].executor;
  return seen;
}

void expect_same_bits(const ControlForm::Seen& a, const ControlForm::Seen& b, const std::string& what) {
  ASSERT_EQ(a.calls.size(), b.calls.size()) << what;
  for (size_t call = 0; call < a.calls.size(); ++call) {
    ASSERT_EQ(a.calls[call].size(), b.calls[call].size()) << what;
    for (size_t i = 0; i < a.calls[call].size(); ++i)
      EXPECT_TRUE(same_bits(a.calls[call][i], b.calls[call][i]))
          << what << ", call " << call << ", tensor " << i;
  }
}

}  // namespace tandem::testing
