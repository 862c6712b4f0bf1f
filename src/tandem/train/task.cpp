// What all tasks have in common, and the table of their names.
#include "tandem/train/task.h"

#include <algorithm>
#include <map>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/data/registry.h"
#include "tandem/ops/create.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/random.h"

namespace tandem {
namespace {

using Maker = TaskPtr (*)(const TaskOptions&);
struct Made {
  std::string description;
  Maker make;
};
std::map<std::string, Made>& table() {
  static auto& rows = *new std::map<std::string, Made>;
  return rows;
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

TaskBatch::TaskBatch(const std::vector<std::string>& names, std::vector<Tensor> tensors)
    : names_(&names), tensors_(std::move(tensors)) {
  TD_CHECK(tensors_.size() >= names.size() && !names.empty(), "data: a sample must have ", names.size(),
           " fields (", listed(names), ") for this task; got ", tensors_.size(), ".");
}

bool TaskBatch::has(std::string_view name) const {
  for (const std::string& own : *names_)
    if (own == name) return true;
  return false;
}

const Tensor& TaskBatch::operator[](std::string_view name) const {
  for (size_t i = 0; i < names_->size(); ++i)
    if ((*names_)[i] == name) return tensors_[i];
  throw Error(
      str("task: a batch has the fields ", listed(*names_), "; got '", one_line(std::string(name)), "'."));
}

std::vector<int64_t> Task::outputs(const data::Splits& splits) const {
  return {std::max<int64_t>(splits.train->get(0).at(1).size(), 1)};
}

std::vector<Tensor> Task::collate(const data::Dataset& set, std::span<const int64_t> indices, int64_t epoch,
                                  int64_t) const {
  return set.batch_at(indices, epoch);
}

std::vector<Tensor> Task::forward(nn::Module& model, const TaskBatch& batch, std::vector<Tensor>&) const {
  return {model(batch["input"])};
}

std::vector<Tensor> Task::made_up_batch(const Dims& input, int64_t batch) const {
  Dims shape = input;
  shape.insert(0, batch);
  return {randn(shape), zeros({batch}, DType::i64)};
}

std::vector<Tensor> Task::generate(nn::Module&, const TaskBatch&) const {
  throw Error(str("predict: the task ", name(), " must define generate(), as it says that it generates."));
}

TaskRow::TaskRow(const char* name, const char* description, Maker make) {
  table()[name] = {description, make};
}

TaskPtr make_task(const std::string& name, const TaskOptions& options) {
  const auto at = table().find(name);
  TD_CHECK(at != table().end(), "task: must be one of ", listed(task_names()), "; got '", one_line(name),
           "'.");
  return at->second.make(options);
}

namespace {

std::optional<TaskAnswer> answer_kind_of(const std::string& task) {
  const auto at = table().find(task);
  if (at == table().end()) return {};
  return at->second.make({})->answer_kind();
}

}  // namespace

bool has_classes(const std::string& task) { return answer_kind_of(task) == TaskAnswer::one_class; }

bool gives_text(const std::string& task) {
  const std::optional<TaskAnswer> kind = answer_kind_of(task);
  return kind == TaskAnswer::continuation || kind == TaskAnswer::translation ||
         kind == TaskAnswer::transcript;
}

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const auto& [name, row] : table()) names.push_back(name);
  return names;
}

}  // namespace tandem
