#include "lab/src/tandem_driver/load_cell.h"

#include <numeric>

#include "lab/src/tandem_driver/steps.h"

namespace tandem::lab::tandem_driver {

LoadCell::LoadCell(CellRequest request) : request_(std::move(request)) {
  set_threads(static_cast<int>(request_.threads));
  feed_ = std::make_unique<Feed>(request_, request_.images, nullptr);
}

Json LoadCell::prepared() const {
  return {{"parameters", 0}, {"obeyed", request_.switches}, {"notes", Json::array()}};
}

Json LoadCell::check() const {
  const data::DatasetPtr set = picture_set(request_.images, request_, request_.batch, false);
  std::vector<int64_t> places(static_cast<size_t>(request_.batch));
  std::iota(places.begin(), places.end(), int64_t{0});
  const Tensor x = set->batch(places)[0];
  return {{"parameters", 0}, {"outputs", {{request_.line.inputs[0].name, shown_values(x)}}}};
}

Json LoadCell::run(const Json& request) {
  const StepsAsked asked = read_run(request);
  Json answer = timed_steps(
      asked,
      [&](int64_t i) {
        if (i == 0) feed_->begin(asked.steps);
        feed_->next();
      },
      [&] { backend(request_.device).synchronize(request_.device); });
  answer.update({{"loss", nullptr}, {"updates", 0}, {"samples_sum", feed_->samples_sum()}});
  return answer;
}

}  // namespace tandem::lab::tandem_driver
