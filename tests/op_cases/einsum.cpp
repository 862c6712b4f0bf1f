// Cases of einsum and of the products made of matmul. The einsum cases are rows of a list that golden/ops/einsum.py
// repeats, in the same order: each is compared with a sum over all indices and with PyTorch.
#include "tandem/ops/einsum.h"

#include <map>

#include "tandem/ops/matmul.h"
#include "tandem/ops/random.h"
#include "tests/op_cases/reference.h"

namespace tandem::testing {

namespace {

struct Sum {
  const char* equation;
  std::vector<Dims> shapes;
};

const Sum kSums[] = {
    {"i->", {{5}}},
    {"i->i", {{5}}},
    {"ij->", {{3, 4}}},
    {"ij->i", {{3, 4}}},
    {"ij->j", {{3, 4}}},
    {"ij->ji", {{3, 4}}},
    {"ii->", {{4, 4}}},
    {"ii->i", {{4, 4}}},
    {"ii", {{4, 4}}},
    {"ijj->i", {{2, 3, 3}}},
    {"iij->ji", {{3, 3, 2}}},
    {"iii->i", {{3, 3, 3}}},
    {"iijj->ij", {{2, 2, 3, 3}}},
    {"ijij->ij", {{2, 3, 2, 3}}},
    {"ba", {{2, 3}}},
    {"i,i->", {{5}, {5}}},
    {"i,i->i", {{5}, {5}}},
    {"i,j->ij", {{3}, {4}}},
    {"i,j", {{3}, {4}}},
    {"ij,j->i", {{3, 4}, {4}}},
    {"ij,jk->ik", {{3, 4}, {4, 5}}},
    {"ij,jk", {{3, 4}, {4, 5}}},
    {"ij,kj->ik", {{3, 4}, {5, 4}}},
    {"ji,jk->ik", {{4, 3}, {4, 5}}},
    {"ij,jk->ki", {{3, 4}, {4, 5}}},
    {"ij,ij->", {{3, 4}, {3, 4}}},
    {"ij,ij->ij", {{3, 4}, {3, 4}}},
    {"ij,ij->i", {{3, 4}, {3, 4}}},
    {"ij,ji->", {{3, 4}, {4, 3}}},
    {"bij,bjk->bik", {{2, 3, 4}, {2, 4, 5}}},
    {"bij,bjk->ikb", {{2, 3, 4}, {2, 4, 5}}},
    {"bij,jk->bik", {{2, 3, 4}, {4, 5}}},
    {"bi,bi->b", {{3, 4}, {3, 4}}},
    {"bi,bj->bij", {{2, 3}, {2, 4}}},
    {"bij,bij->b", {{2, 3, 4}, {2, 3, 4}}},
    {"bn,anm,bm->ba", {{2, 3}, {4, 3, 5}, {2, 5}}},
    {"ij,jk,kl->il", {{2, 3}, {3, 4}, {4, 5}}},
    {"ij,jk,kl", {{5, 2}, {2, 3}, {3, 2}}},
    {"i,j,k->ijk", {{2}, {3}, {4}}},
    {"i,i,i->", {{4}, {4}, {4}}},
    {"ij,j,i->", {{3, 4}, {4}, {3}}},
    {"abcd,cdef->abef", {{2, 1, 3, 2}, {3, 2, 2, 2}}},
    {"abc,cd->abd", {{2, 3, 4}, {4, 2}}},
    {"abc,abd->cd", {{2, 3, 4}, {2, 3, 2}}},
    {"...ij,...jk->...ik", {{2, 3, 4}, {2, 4, 5}}},
    {"...ij,...jk", {{2, 1, 3, 4}, {3, 4, 2}}},
    {"...i->...", {{2, 3, 4}}},
    {"...", {{2, 3}}},
    {"i...->i", {{2, 3, 4}}},
    {"...i,i->...", {{2, 3, 4}, {4}}},
    {"i...j,j...->i...", {{2, 3, 4}, {4, 3}}},
    {"ij...,jk...->ik...", {{2, 3, 2}, {3, 4, 2}}},
    {"bhqd,bhkd->bhqk", {{2, 2, 3, 4}, {2, 2, 5, 4}}},
    {"bhqk,bhkd->bqhd", {{2, 2, 3, 5}, {2, 2, 5, 4}}},
    {"ij,jk->ik", {{3, 1}, {4, 5}}},
    {"ij,ij->ij", {{3, 1}, {1, 4}}},
    {"ij,kl->", {{2, 3}, {4, 2}}},
    {"ij,k->i", {{3, 2}, {4}}},
    {"aB,Bc->ca", {{2, 3}, {3, 4}}},
    {"Ab,bC", {{2, 3}, {3, 4}}},
    {" i j , j k -> i k ", {{2, 3}, {3, 4}}},
    {"ij,jk,ki->", {{2, 3}, {3, 4}, {4, 2}}},
    {"ijk,jil,kl->", {{2, 3, 4}, {3, 2, 2}, {4, 2}}},
    {",ij->ij", {{}, {2, 3}}},
    {"ii,ij,jj->j", {{3, 3}, {3, 2}, {2, 2}}},
    {"ij,j,jk->ik", {{2, 3}, {3}, {3, 4}}},
};

/// Letters of a term with "..." replaced by one digit an axis, aligned at the right; spaces removed.
std::string spelled(const std::string& term, int hidden) {
  std::string out;
  for (size_t i = 0; i < term.size(); ++i) {
    if (term[i] == ' ') continue;
    if (term[i] != '.') {
      out += term[i];
      continue;
    }
    for (int h = hidden; h > 0; --h) out += static_cast<char>('0' + h);
    i += 2;
  }
  return out;
}

int letters_of(const std::string& term) {
  int count = 0;
  for (const char c : term) count += c != ' ' && c != '.';
  return count;
}

Array einsum_reference(const std::string& equation, std::span<const Array> in) {
  const size_t arrow = equation.find("->");
  std::vector<std::string> terms(1);
  for (const char c : equation.substr(0, arrow)) {
    if (c == ',')
      terms.emplace_back();
    else
      terms.back() += c;
  }
  std::map<char, Dim> sizes;
  std::map<char, int> count;
  int most = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    const int hidden = in[i].shape.rank() - letters_of(terms[i]);
    most = std::max(most, hidden);
    terms[i] = spelled(terms[i], hidden);
    for (int axis = 0; axis < in[i].shape.rank(); ++axis) {
      Dim& size = sizes[terms[i][static_cast<size_t>(axis)]];
      size = std::max(size, in[i].shape[axis]);
      ++count[terms[i][static_cast<size_t>(axis)]];
    }
  }
  std::string out;
  if (arrow != std::string::npos) {
    out = spelled(equation.substr(arrow + 2), most);
  } else {
    out = spelled("...", most);
    for (const auto& [label, times] : count)
      if (times == 1 && label > '9') out += label;
  }
  std::string labels;
  Dims shape, all;
  for (const char label : out) shape.push_back(sizes[label]);
  for (const auto& [label, size] : sizes) {
    labels += label;
    all.push_back(size);
  }
  Array result(shape);
  each_index(all, [&](const Dims& index) {
    const auto value_of = [&](char label) { return index[static_cast<int>(labels.find(label))]; };
    double product = 1;
    for (size_t i = 0; i < terms.size(); ++i) {
      Dims at = in[i].shape;
      for (int axis = 0; axis < at.rank(); ++axis)
        at[axis] = at[axis] == 1 ? 0 : value_of(terms[i][static_cast<size_t>(axis)]);
      product *= in[i].at(at);
    }
    Dims at = shape;
    for (int axis = 0; axis < at.rank(); ++axis) at[axis] = value_of(out[static_cast<size_t>(axis)]);
    result.at(at) += product;
  });
  return result;
}

OpCase sum_case(const std::string& name, const std::string& equation, const std::vector<Dims>& shapes) {
  OpCase op_case;
  op_case.name = name;
  for (const Dims& shape : shapes) op_case.inputs.push_back({shape});
  op_case.call = [equation](std::span<const Tensor> in) { return einsum(equation, {in.begin(), in.end()}); };
  op_case.reference = [equation](std::span<const Array> in) { return einsum_reference(equation, in); };
  op_case.tolerance = 4e-6;
  op_case.dtypes = {};
  return op_case;
}

/// A case whose reference is an einsum.
OpCase like(const std::string& name, const std::string& equation, const std::vector<Dims>& shapes,
            CaseCall call) {
  OpCase op_case = sum_case(name, equation, shapes);
  op_case.call = std::move(call);
  op_case.dtypes = half_types();
  op_case.half_ulps = 8;
  return op_case;
}

Tensor of(const Dims& shape, DType dtype = DType::f32) { return zeros(shape, dtype); }

}  // namespace

void add_einsum_cases(std::vector<OpCase>& cases) {
  using In = std::span<const Tensor>;
  int number = 0;
  for (const Sum& s : kSums) {
    ++number;
    OpCase op_case = sum_case(str("einsum/", number < 10 ? "0" : "", number), s.equation, s.shapes);
    if (number == 21) {
      op_case.dtypes = kNumbers;
      op_case.int_high = 3;
      op_case.half_ulps = 8;
    }
    cases.push_back(op_case);
  }
  cases.push_back(sum_case("einsum/empty", "ij,jk->ik", {{0, 3}, {3, 2}}));
  cases.push_back(sum_case("einsum/empty_sum", "ij,jk->ik", {{2, 0}, {0, 3}}));
  cases.push_back(sum_case("einsum/empty_diagonal", "ii->i", {{0, 0}}));

  cases.push_back(like("tensordot", "abc,bcd->ad", {{2, 3, 4}, {3, 4, 2}},
                       [](In in) { return tensordot(in[0], in[1]); }));
  cases.push_back(like("tensordot/axes", "abc,cda->bd", {{2, 3, 4}, {4, 5, 2}}, [](In in) {
    return tensordot(in[0], in[1], {0, -1}, {2, 0});
  }));
  cases.push_back(
      like("tensordot/none", "a,b->ab", {{2}, {3}}, [](In in) { return tensordot(in[0], in[1], 0); }));
  cases.push_back(like("tensordot/empty", "ab,bc->ac", {{0, 3}, {3, 2}},
                       [](In in) { return tensordot(in[0], in[1], 1); }));
  cases.push_back(like("dot", "i,i->", {{7}, {7}}, [](In in) { return dot(in[0], in[1]); }));
  cases.push_back(like("outer", "i,j->ij", {{3}, {4}}, [](In in) { return outer(in[0], in[1]); }));
  OpCase crossed;
  crossed.name = "cross";
  crossed.inputs = {{{2, 3, 4}}, {{1, 3, 4}}};
  crossed.call = [](In in) { return cross(in[0], in[1], 1); };
  crossed.reference = [](std::span<const Array> in) {
    Array out({in[0].shape[0], 3, 4});
    each_index(out.shape, [&](const Dims& i) {
      const Dim j = (i[1] + 1) % 3, k = (i[1] + 2) % 3;
      out.at(i) = in[0].at({i[0], j, i[2]}) * in[1].at({0, k, i[2]}) -
                  in[0].at({i[0], k, i[2]}) * in[1].at({0, j, i[2]});
    });
    return out;
  };
  crossed.dtypes = kSigned;
  cases.push_back(crossed);
  cases.push_back(with_shapes(crossed, "cross/empty", {{0, 3, 4}, {1, 3, 4}}));
  const auto with_c = [](const std::string& product, double beta, double alpha) {
    return [=](std::span<const Array> in) {
      Array out = einsum_reference(product, in.subspan(1));
      each_index(out.shape,
                 [&](const Dims& i) { out.at(i) = beta * stretched_at(in[0], i) + alpha * out.at(i); });
      return out;
    };
  };
  OpCase sum = like("addmm", "ij,jk->ik", {{5}, {3, 4}, {4, 5}},
                    [](In in) { return addmm(in[0], in[1], in[2], {.beta = 0.5, .alpha = 2}); });
  sum.reference = with_c("ij,jk->ik", 0.5, 2);
  cases.push_back(sum);
  sum = like("baddbmm", "bij,bjk->bik", {{2, 3, 5}, {2, 3, 4}, {2, 4, 5}},
             [](In in) { return baddbmm(in[0], in[1], in[2]); });
  sum.reference = with_c("bij,bjk->bik", 1, 1);
  cases.push_back(sum);
  OpCase kronecker = like("kron", "", {{2, 3}, {4, 2}}, [](In in) { return kron(in[0], in[1]); });
  kronecker.reference = [](std::span<const Array> in) {
    Array out({8, 6});
    each_index(out.shape, [&](const Dims& i) {
      out.at(i) = in[0].at({i[0] / 4, i[1] / 2}) * in[1].at({i[0] % 4, i[1] % 2});
    });
    return out;
  };
  cases.push_back(kronecker);
}

void add_einsum_errors(std::vector<ErrorCase>& errors) {
  const auto bad = [&](const std::string& name, const std::string& equation, const std::vector<Dims>& shapes,
                       const std::vector<std::string>& texts) {
    errors.push_back({"einsum/" + name,
                      [=] {
                        std::vector<Tensor> in;
                        for (const Dims& shape : shapes) in.push_back(of(shape));
                        einsum(equation, in);
                      },
                      texts});
  };
  bad("letter", "i1,jk->ik", {{2, 3}, {3, 4}}, {"einsum: ", "'1'", "position 1 of 'i1,jk->ik'"});
  bad("dots", "i..,j", {{2, 3}, {3}}, {"einsum: ", "position 1"});
  bad("dots_twice", "...i...", {{2, 3}}, {"einsum: ", "position 4"});
  bad("arrow", "i-j", {{2}}, {"einsum: ", "position 1"});
  bad("arrow_twice", "i->i->i", {{2}}, {"einsum: ", "position 4"});
  bad("two_outputs", "i->i,i", {{2}}, {"einsum: ", "position 4"});
  bad("operands", "ij,jk->ik", {{2, 3}}, {"einsum: ", "names 2", "got 1"});
  bad("rank", "ijk,k->i", {{2, 3}, {3}}, {"einsum: ", "3 letters", "(2, 3)"});
  bad("hidden", "i,i->", {{2, 3}, {3}}, {"einsum: ", "'...'", "(2, 3)"});
  bad("size", "ij,jk->ik", {{2, 3}, {4, 5}}, {"einsum: ", "3 and 4", "position 3", "operand 1 (4, 5)"});
  bad("diagonal", "ii->i", {{2, 3}}, {"einsum: ", "2 and 3", "position 1"});
  bad("unknown_output", "ij->ik", {{2, 3}}, {"einsum: ", "'k'", "position 5"});
  bad("output_twice", "ij->ii", {{2, 3}}, {"einsum: ", "'i'", "position 5"});
  bad("broadcast", "...i,...i", {{2, 3}, {4, 3}}, {"einsum: ", "2 and 4", "'...'"});
  bad("axes", "abcd,efgh,ij->abcdefghij", {{2, 2, 2, 2}, {2, 2, 2, 2}, {2, 2}},
      {"einsum: ", "8 axes", "got 10"});
  errors.push_back({"einsum/types",
                    [] {
                      einsum("i,i", {of({2}), of({2}, DType::f64)});
                    },
                    {"einsum: ", "f64", "f32"}});
  errors.push_back({"einsum/undefined", [] { einsum("i", {Tensor()}); }, {"einsum: ", "undefined"}});
  errors.push_back({"tensordot/sizes",
                    [] {
                      tensordot(of({2, 3}), of({4, 2}), 1);
                    },
                    {"tensordot: ", "(2, 3)", "(4, 2)"}});
  errors.push_back({"tensordot/count", [] { tensordot(of({2}), of({2}), 2); }, {"tensordot: ", "got 2"}});
  errors.push_back({"tensordot/lists",
                    [] {
                      tensordot(of({2, 3}), of({3, 2}), {0}, {0, 1});
                    },
                    {"tensordot: ", "one length"}});
  errors.push_back({"dot/rank", [] { dot(of({2, 2}), of({2})); }, {"dot: ", "vectors", "(2, 2)"}});
  errors.push_back({"dot/size", [] { dot(of({2}), of({3})); }, {"dot: ", "(2,)", "(3,)"}});
  errors.push_back({"cross/size", [] { cross(of({2, 4}), of({2, 4})); }, {"cross: ", "three", "(2, 4)"}});
  errors.push_back({"cross/rank", [] { cross(of({3}), of({2, 3})); }, {"cross: ", "(3,)", "(2, 3)"}});
  errors.push_back({"cross/axis", [] { cross(of({3}), of({3}), 1); }, {"cross: ", "1"}});
  errors.push_back({"cross/shapes", [] { cross(of({2, 3}), of({4, 3})); }, {"cross: ", "(2, 3)", "(4, 3)"}});
  errors.push_back({"outer/rank", [] { outer(of({2, 2}), of({2})); }, {"outer: ", "(2, 2)"}});
  errors.push_back({"addmm/rank", [] { addmm(of({2}), of({2}), of({2, 2})); }, {"addmm: ", "matrices"}});
  errors.push_back({"addmm/c",
                    [] {
                      addmm(of({3, 2, 2}), of({2, 2}), of({2, 2}));
                    },
                    {"addmm: ", "(3, 2, 2)"}});
  errors.push_back({"kron/rank", [] { kron(of({1, 1, 1, 1, 1}), of({2})); }, {"kron: ", "4 axes"}});
}

}  // namespace tandem::testing
