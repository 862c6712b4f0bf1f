#include "tandem/core/rng.h"

namespace tandem {

namespace {
thread_local GeneratorState t_state;
}

GeneratorState generator_state() { return t_state; }
void set_generator_state(GeneratorState state) { t_state = state; }
void manual_seed(uint64_t seed) { t_state = {seed, 0}; }

RngPosition take_random(uint64_t blocks) {
  const RngPosition position{t_state.seed, t_state.offset, nullptr};
  t_state.offset += blocks;
  return position;
}

}  // namespace tandem
