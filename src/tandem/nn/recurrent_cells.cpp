#include "tandem/nn/recurrent_cells.h"

#include "tandem/core/autocast.h"
#include "tandem/nn/init.h"
#include "tandem/ops/arrange.h"
#include "tandem/ops/create.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem::nn {
namespace {

Dim rows_of(const std::string& layer, int64_t gates, int64_t features, int64_t hidden,
            const RecurrentCellOptions& options) {
  TD_CHECK(features >= 1 && hidden >= 1, layer, ": sizes must be at least 1; got ", features,
           " features and ", hidden, " hidden.");
  TD_CHECK(!options.relu || gates == 1, layer, ": relu is of an RNNCell alone; got it here. Leave it out.");
  return times_capped(gates, hidden);
}

}  // namespace

RecurrentCell::RecurrentCell(Module* parent, const std::string& name, const char* type, int64_t gates,
                             int64_t features, int64_t hidden, const Options& options)
    : Module(parent, name),
      weight_ih(drawn("weight_ih", {rows_of(label(type, name), gates, features, hidden, options), features},
                      hidden)),
      weight_hh(drawn("weight_hh", {weight_ih.size(0), hidden}, hidden)),
      bias_ih(drawn("bias_ih", {weight_ih.size(0)}, hidden, options.bias)),
      bias_hh(drawn("bias_hh", {weight_ih.size(0)}, hidden, options.bias)),
      type_(type) {}

Tensor RecurrentCell::drawn(const char* name, const Dims& shape, int64_t hidden, bool is_there) {
  return is_there ? parameter(name, uniform_by_fan_in(shape, hidden)) : Tensor();
}

void RecurrentCell::check_input(const Tensor& x) const {
  const DType dtype = weight_ih.dtype();
  TD_CHECK(x.defined() && x.rank() == 2 && x.size(1) == features(), type_, ": x must be (N, ", features(),
           "); got ", describe(x), ". unsqueeze() a single sample.");
  TD_CHECK(x.dtype() == dtype || (autocast_is_on() && is_floating(x.dtype())), type_,
           ": x must have the type ", dtype, " of the weights; got ", describe(x),
           ". cast() it, or move the cell by to().");
}

Tensor RecurrentCell::checked_state(const char* what, const Tensor& state, Dim samples) const {
  const Dims shape{samples, hidden()};
  if (!state.defined()) return zeros(shape, weight_hh.dtype(), weight_hh.device());
  TD_CHECK(state.shape() == shape && state.dtype() == weight_hh.dtype(), type_, ": the state ", what,
           " must be ", weight_hh.dtype(), " ", shape, "; got ", describe(state), ". Zeros are the default.");
  return state;
}

LSTMCell::State LSTMCell::operator()(const Tensor& x, const State& before) {
  TD_CHECK(
      before.h.defined() == before.c.defined(),
      "LSTMCell: its states are two, h and c; got one of them. Give both or neither; zeros are the default.");
  std::vector<Tensor> in = {x};
  if (before.h.defined()) in.insert(in.end(), {before.h, before.c});
  const std::vector<Tensor> out = call(in, [&](const std::vector<Tensor>& all) -> std::vector<Tensor> {
    const State now = forward(all[0], all.size() == 1 ? State() : State{all[1], all[2]});
    return {now.h, now.c};
  });
  return {out[0], out[1]};
}

LSTMCell::State LSTMCell::forward(const Tensor& x, const State& before) {
  check_input(x);
  return step(linear(x, weight_ih, bias_ih.defined() ? bias() : Tensor()), before);
}

// Not by the op recurrent(), which arranges the weights anew in each call: that pays for whole sequences alone. Of 1,024 units its
// gradient took 70 ms for one step, where these ops take 4.
LSTMCell::State LSTMCell::step(const Tensor& product, const State& before) const {
  TD_CHECK(product.defined() && product.rank() == 2 && product.size(1) == weight_hh.size(0),
           "LSTMCell: the product of the input must be (N, ", weight_hh.size(0), "); got ", describe(product),
           ".");
  const Tensor h_before = checked_state("h", before.h, product.size(0)),
               c_before = checked_state("c", before.c, product.size(0));
  const std::vector<Tensor> gates =
      chunk(cast(product, weight_hh.dtype()) + linear(h_before, weight_hh), 4, 1);
  const Tensor c = sigmoid(gates[1]) * c_before + sigmoid(gates[0]) * tanh(gates[2]);
  return {sigmoid(gates[3]) * tanh(c), c};
}

Tensor LSTMCell::bias() const {
  TD_CHECK(bias_ih.defined(), "LSTMCell: bias() is of a cell that has biases; this one was made without.");
  return bias_ih + bias_hh;
}

namespace {

/// The call of a cell with one state, with the hooks around it.
template <class Cell>
auto with_one_state(Cell& cell, const Tensor& h) {
  return [&cell, has_state = h.defined()](const std::vector<Tensor>& all) -> std::vector<Tensor> {
    return {cell.forward(all[0], has_state ? all[1] : Tensor())};
  };
}
std::vector<Tensor> inputs_of(const Tensor& x, const Tensor& h) {
  return h.defined() ? std::vector<Tensor>{x, h} : std::vector<Tensor>{x};
}

}  // namespace

Tensor GRUCell::operator()(const Tensor& x, const Tensor& h) {
  return only(call(inputs_of(x, h), with_one_state(*this, h)));
}

Tensor GRUCell::forward(const Tensor& x, const Tensor& h) {
  check_input(x);
  const Tensor before = checked_state("h", h, x.size(0));
  const std::vector<Tensor> of_x = chunk(cast(linear(x, weight_ih, bias_ih), weight_hh.dtype()), 3, 1),
                            of_h = chunk(cast(linear(before, weight_hh, bias_hh), weight_hh.dtype()), 3, 1);
  const Tensor r = sigmoid(of_x[0] + of_h[0]), z = sigmoid(of_x[1] + of_h[1]),
               n = tanh(of_x[2] + r * of_h[2]);
  return n + z * (before - n);
}

Tensor RNNCell::operator()(const Tensor& x, const Tensor& h) {
  return only(call(inputs_of(x, h), with_one_state(*this, h)));
}

Tensor RNNCell::forward(const Tensor& x, const Tensor& h) {
  check_input(x);
  const Tensor before = checked_state("h", h, x.size(0));
  const Tensor sum =
      cast(linear(x, weight_ih, bias_ih), weight_hh.dtype()) + linear(before, weight_hh, bias_hh);
  return relu_ ? relu(sum) : tanh(sum);
}

}  // namespace tandem::nn
