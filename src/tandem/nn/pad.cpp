// Padding as layers.
#include "tandem/nn/pad.h"

#include <algorithm>

namespace tandem::nn {

namespace {

std::string class_name(int axes, PadMode mode) {
  constexpr const char* kNames[] = {"Zero", "Reflection", "Replication", "Circular"};
  return str(kNames[static_cast<size_t>(mode)], "Pad", axes, "d");
}

}  // namespace

template <int kAxes, PadMode kMode>
PadLayer<kAxes, kMode>::PadLayer(Module* parent, const std::string& name, const std::vector<int64_t>& widths,
                                 double value)
    : Module(parent, name), widths_(widths), options_{kMode, value} {
  const std::string layer = label(class_name(kAxes, kMode).c_str(), name);
  TD_CHECK(widths.size() == 2 * kAxes, layer, ": there must be one width, or two for each of ", kAxes,
           " axes, the last axis first; got ", widths.size(), ".");
  if (kMode == PadMode::constant) return;
  const auto negative = std::find_if(widths.begin(), widths.end(), [](int64_t width) { return width < 0; });
  TD_CHECK(negative == widths.end(), layer, ": widths must be at least 0; got ",
           negative == widths.end() ? 0 : *negative, ". A ZeroPad cuts where a width is negative.");
}

template <int kAxes, PadMode kMode>
Tensor PadLayer<kAxes, kMode>::forward(const Tensor& x) {
  const bool fits =
      x.defined() &&
      (kMode == PadMode::constant ? x.rank() >= kAxes : x.rank() == kAxes + 1 || x.rank() == kAxes + 2);
  TD_CHECK(fits, type_name(), ": x must have ",
           kMode == PadMode::constant ? str("at least ", kAxes) : str(kAxes + 1, " or ", kAxes + 2),
           " axes; got ", x.defined() ? describe(x) : "an undefined handle", ".");
  return pad(x, widths_, options_);
}

template <int kAxes, PadMode kMode>
std::string PadLayer<kAxes, kMode>::type_name() const {
  return class_name(kAxes, kMode);
}

template class PadLayer<1, PadMode::constant>;
template class PadLayer<2, PadMode::constant>;
template class PadLayer<3, PadMode::constant>;
template class PadLayer<1, PadMode::reflect>;
template class PadLayer<2, PadMode::reflect>;
template class PadLayer<3, PadMode::reflect>;
template class PadLayer<1, PadMode::replicate>;
template class PadLayer<2, PadMode::replicate>;
template class PadLayer<3, PadMode::replicate>;
template class PadLayer<1, PadMode::circular>;
template class PadLayer<2, PadMode::circular>;
template class PadLayer<3, PadMode::circular>;

}  // namespace tandem::nn
