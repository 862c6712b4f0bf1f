#include "tandem/nn/dropout.h"

#include "tandem/ops/dropout.h"

namespace tandem::nn {

ChannelDropout::ChannelDropout(Module* parent, const std::string& name, const char* layer, double p,
                               Function function)
    : Module(parent, name), p_(p), function_(function) {
  TD_CHECK(p >= 0 && p < 1, layer, " ", name, ": the probability must be at least 0 and below 1; got ", p,
           ".");
}

Dropout1d::Dropout1d(Module* parent, const std::string& name, double p)
    : ChannelDropout(parent, name, "Dropout1d", p, dropout1d) {}
Dropout2d::Dropout2d(Module* parent, const std::string& name, double p)
    : ChannelDropout(parent, name, "Dropout2d", p, dropout2d) {}
Dropout3d::Dropout3d(Module* parent, const std::string& name, double p)
    : ChannelDropout(parent, name, "Dropout3d", p, dropout3d) {}
AlphaDropout::AlphaDropout(Module* parent, const std::string& name, double p)
    : ChannelDropout(parent, name, "AlphaDropout", p, alpha_dropout) {}

}  // namespace tandem::nn
