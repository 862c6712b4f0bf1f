// A prepared cell: the network of one request `prepare`, with the calls check, run, fit and breakdown.
#pragma once

#include <functional>
#include <memory>

#include "lab/src/tandem_driver/feed.h"
#include "lab/src/tandem_driver/request.h"
#include "lab/src/tandem_driver/samples.h"
#include "lab/src/tandem_driver/steps.h"
#include "lab/src/tandem_driver/task.h"

namespace tandem::lab::tandem_driver {

class PreparedCell {
 public:
  explicit PreparedCell(CellRequest request);
  ~PreparedCell();

  int64_t parameters() const { return parameters_; }
  /// Each returns the fields of its answer.
  Json prepared() const;
  Json check(const Json& request);
  Json run(const Json& request);
  /// `progress` gets one object per epoch.
  Json fit(const Json& request, const std::function<void(const Json&)>& progress);
  Json breakdown(const Json& request);

 private:
  using Fields = std::vector<Tensor>;  // of a batch: inputs, then targets
  using Batches = std::vector<Fields>;
  void build();
  TensorFunction forward() const;
  StepOptions step_options() const;
  /// Calls a function as the variant does: directly, or compiled. `compiled` keeps what was compiled.
  std::vector<Tensor> call(const TensorFunction& function, std::unique_ptr<Compiled>& compiled,
                           const std::vector<Tensor>& in) const;
  const data::TensorSet& samples() const { return train_ ? *train_ : *test_; }
  Fields batch(int64_t index) const;  // on the device
  const Batches& resident();          // the batches that stay on the device, which the steps take in turn
  /// Batch i of `steps`: a resident one or, with the switch feed=loader, the next of the pipeline.
  const Fields& take(int64_t i, int64_t steps);
  /// Sets the states to zero, those of training steps and those of inference.
  void forget();
  void step(const Fields& batch);
  void synchronize() const;
  Json first_outputs(const Fields& batch);
  Json first_gradients(const Fields& batch);
  int64_t take_steps(int64_t count);

  CellRequest request_;
  std::unique_ptr<data::TensorSet> train_, test_;
  std::unique_ptr<nn::Module> model_;
  const Names* field_names_ = nullptr;  // the names of a batch's fields
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<optim::LossScaler> scaler_;  // only in f16
  std::unique_ptr<TrainingStep> training_;     // only in phase train
  TensorFunction forward_;
  std::unique_ptr<Compiled> compiled_forward_;
  std::vector<Tensor> states_;  // in inference, from step to step
  Batches resident_;            // as resident() gives them; empty before its first call
  std::unique_ptr<Feed> feed_;  // only with the switch feed=loader
  std::vector<Tensor> last_;    // the loss or the outputs of the last step
  bool is_fresh_ = true;        // no step has changed the weights yet
  int64_t parameters_ = 0, updates_ = 0;
};

}  // namespace tandem::lab::tandem_driver
