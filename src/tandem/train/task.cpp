// What all tasks have in common, and the table of their names.
#include "tandem/train/task.h"

#include <algorithm>
#include <map>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/data/registry.h"
#include "tandem/nn/signature.h"
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

std::vector<int64_t> Task::outputs(const data::Splits& splits) const {
  return {std::max<int64_t>(splits.train->get(0).at(1).size(), 1)};
}

namespace {

/// The name of the only field of a role; null where there are none or several.
const std::string* only_one(const std::vector<data::Field>& fields, data::Role role) {
  const std::string* found = nullptr;
  for (const data::Field& field : fields) {
    if (field.role != role) continue;
    if (found) return nullptr;
    found = &field.name;
  }
  return found;
}

}  // namespace

Named Task::collate(const data::Dataset& set, std::span<const int64_t> indices, int64_t epoch,
                    int64_t length) const {
  const std::vector<data::Field> own = fields(), given = set.fields();
  Named batch = data::named_batch(set, indices, epoch, length, own);
  std::vector<std::string> names(batch.names().begin(), batch.names().end());
  for (const data::Role role : {data::Role::input, data::Role::target}) {
    const std::string *ours = only_one(own, role), *theirs = only_one(given, role);
    if (ours && theirs && !batch.names().find(*ours))
      std::replace(names.begin(), names.end(), *theirs, *ours);
  }
  return {Names::of(names), batch.values()};
}

std::vector<int64_t> Task::lengths(const data::Dataset& set) const {
  const std::vector<data::Field> given = set.fields();
  if (given.empty() || given[0].join != data::Join::pad) return {};
  std::vector<int64_t> each;
  for (int64_t i = 0; i < set.size(); ++i) each.push_back(set.length(i));
  return each;
}

Named Task::forward(nn::Module& model, const Named& batch, Named&) const {
  const nn::Signature& signature = model.signature();
  if (signature.arguments().size() > 1) return model(signature.taken_from(batch));
  return {signature.results(), {model(batch["input"])}};
}

Named Task::made_up_batch(const Dims& input, int64_t batch) const {
  Dims shape = input;
  shape.insert(0, batch);
  return {{"input", randn(shape)}, {"target", zeros({batch}, DType::i64)}};
}

std::vector<Tensor> Task::generate(nn::Module&, const Named&) const {
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
