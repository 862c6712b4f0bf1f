// What --limit takes.
#include "tandem/train/limit.h"

#include <numeric>
#include <set>

#include "tandem/data/compose.h"
#include "tandem/data/labels.h"
#include "tandem/data/split.h"
#include "tandem/train/task.h"

namespace tandem {

data::DatasetPtr Limited::taken(const data::DatasetPtr& from) const {
  return indices.empty() ? from : data::subset(from, indices);
}

std::string Limited::text(const char* part) const {
  if (indices.empty()) return str("all ", set->size(), " samples to ", part);
  return str(indices.size(), " of ", set->size(), " samples to ", part);
}

Limited limited_to(data::DatasetPtr set, std::optional<int64_t> limit, const std::string& task,
                   uint64_t seed) {
  Limited out{.set = std::move(set)};
  const int64_t size = out.set->size();
  if (!limit || *limit >= size) return out;
  if (!make_task(task)->shuffles()) {
    out.indices.resize(static_cast<size_t>(*limit));
    std::iota(out.indices.begin(), out.indices.end(), int64_t{0});
    return out;
  }
  out.is_drawn = true;
  std::vector<int64_t> labels(static_cast<size_t>(size));
  if (has_classes(task)) labels = data::class_labels(*out.set);
  out.indices = data::draw_indices(labels, *limit, seed);
  std::set<int64_t> drawn;
  for (const int64_t i : out.indices) drawn.insert(labels[static_cast<size_t>(i)]);
  out.classes = static_cast<int64_t>(drawn.size());
  out.of_classes = static_cast<int64_t>(std::set<int64_t>(labels.begin(), labels.end()).size());
  return out;
}

std::string taken_text(const std::vector<std::pair<const char*, const Limited*>>& parts, uint64_t seed,
                       std::vector<std::string>& notices) {
  std::string text, lacking;
  bool is_drawn = false, is_cut = false;
  for (const auto& [part, limited] : parts) {
    text += (text.empty() ? "" : ", ") + limited->text(part);
    is_drawn = is_drawn || limited->is_drawn;
    is_cut = is_cut || !limited->indices.empty();
    if (limited->classes < limited->of_classes)
      lacking += str(lacking.empty() ? "" : ", and ", "the ", limited->indices.size(), " samples to ", part,
                     " are of ", limited->classes, " of the ", limited->of_classes, " classes");
  }
  if (!lacking.empty())
    notices.push_back(str("limit: ", lacking, ". Give a larger `limit` to have every class."));
  if (!is_cut) return "";
  return str(text,
             is_drawn ? str(", drawn by chance, split seed ", seed) : ", the first windows of the text");
}

}  // namespace tandem
