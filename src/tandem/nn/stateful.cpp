#include "tandem/nn/stateful.h"

#include "tandem/core/error.h"
#include "tandem/nn/signature.h"

namespace tandem::nn {

Named step(Module& model, const Tensor& input, const Named& states) {
  const Names &arguments = model.signature().arguments(), &results = model.signature().results();
  for (const std::string& name : states.names())
    TD_CHECK(arguments.find(name) && results.find(name), model.type_name(),
             ": its signature must have the state '", name, "' among its arguments and its results; got ",
             arguments.text(), " and ", results.text(), ". Make it an nn::Model, or override signature().");
  std::vector<std::string> names = {arguments[0]};
  names.insert(names.end(), states.names().begin(), states.names().end());
  std::vector<Tensor> values = {input};
  values.insert(values.end(), states.values().begin(), states.values().end());
  return model(Named(Names::of(names), std::move(values)));
}

}  // namespace tandem::nn
