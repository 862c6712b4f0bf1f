#include "tandem/train/task_calls.h"

#include <algorithm>

#include "tandem/ops/pointwise.h"
#include "tandem/ops/shape.h"

namespace tandem {
namespace {

std::vector<std::string> targets_of(const Task& task) {
  std::vector<std::string> names;
  for (const data::Field& field : task.fields())
    if (field.role == data::Role::target) names.push_back(field.name);
  return names;
}
bool is_in(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string listed(const std::vector<data::Field>& fields) {
  std::string out;
  for (const data::Field& field : fields) out += (out.empty() ? "" : ", ") + field.name;
  return out;
}

}  // namespace

TaskPtr task_or_usual(const TaskPtr& task) { return task ? task : make_task("classification"); }

void check_fields(const Task& task, const Named& batch) {
  const std::vector<data::Field> fields = task.fields();
  for (const data::Field& field : fields)
    TD_CHECK(field.role == data::Role::input || batch.has(field.name), "data: a sample must have ",
             fields.size(), " fields (", listed(fields), ") for this task; got ", batch.size(), " (",
             batch.names().text(), "), without '", field.name, "'.");
}

Named in_type(const Task& task, const Named& batch, DType dtype) {
  const std::vector<std::string> targets = targets_of(task);
  std::vector<Tensor> values = batch.values();
  for (size_t i = 0; i < values.size(); ++i) {
    Tensor& value = values[i];
    if (!value.defined() || value.dtype() == dtype || !is_floating(value.dtype())) continue;
    if (!is_in(targets, batch.names()[i])) value = cast(value, dtype);
  }
  return {batch.names(), std::move(values)};
}

Named moved(const Named& batch, Device device) {
  std::vector<Tensor> values = batch.values();
  for (Tensor& value : values)
    if (value.defined()) value = to(value, device);
  return {batch.names(), std::move(values)};
}

Named without_targets(const Task& task, const Named& batch) {
  const std::vector<std::string> targets = targets_of(task);
  std::vector<std::string> names;
  std::vector<Tensor> values;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (is_in(targets, batch.names()[i])) continue;
    names.push_back(batch.names()[i]);
    values.push_back(batch.values()[i]);
  }
  return {Names::of(names), std::move(values)};
}

Named widened(const Named& outputs) {
  std::vector<Tensor> values = outputs.values();
  for (Tensor& out : values)
    if (out.defined() && bytes_of(out.dtype()) == 2) out = cast(out, DType::f32);
  return {outputs.names(), std::move(values)};
}

Tensor loss_of(const Task& task, const LossFunction& own, const Named& out, const Named& batch,
               LossFor purpose) {
  const Tensor loss = own                            ? own(out[0], batch["target"])
                      : purpose == LossFor::training ? task.loss(out, batch)
                                                     : task.test_loss(out, batch);
  TD_CHECK(loss.rank() == 0 && is_floating(loss.dtype()),
           "loss: must be one number, 0-d, of a floating type; got ", loss.dtype(), " ", loss.shape(),
           ". Take its mean().");
  return loss;
}

Tensor weight_of(const Task& task, const LossFunction& own, const Named& batch, LossFor purpose) {
  return own || purpose == LossFor::testing ? task.test_weight(batch) : task.weight(batch);
}

Named outputs_of(const Task& task, nn::Module& model, const Named& batch, Named& state) {
  const Names& names = state.names();
  Named out = widened(task.forward(model, batch, state));
  TD_CHECK(&state.names() == &names, "task ", task.name(),
           ": forward must leave the state of first_state() (", names.text(), "); it left ",
           state.empty() ? "none" : state.names().text(), ".");
  return out;
}

Runner::Runner(NamedFunction function, bool compiles, const CompileOptions& options)
    : function_(std::move(function)) {
  if (compiles) compiled_ = std::make_unique<CompiledNamed>(function_, options);
}

std::vector<GraphReport> Runner::reports() const {
  return compiled_ ? compiled_->reports() : std::vector<GraphReport>{};
}

}  // namespace tandem
