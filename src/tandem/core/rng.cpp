#include "tandem/core/rng.h"

#include <unistd.h>

#include <atomic>

#include "tandem/core/region.h"
#include "tandem/core/trace.h"

namespace tandem {

namespace {

/// Where a thread begins that was never seeded.
GeneratorState first_state() {
  static std::atomic<uint64_t> threads{0};
  if (gettid() == getpid()) return {};
  const PhiloxBlock key = philox(0x7468726561647321, threads++);
  return {uint64_t{key.x[1]} << 32 | key.x[0], 0};
}

thread_local GeneratorState t_state = first_state();

}  // namespace

GeneratorState generator_state() {
  refuse_while_tracing("generator_state", "what is read there would be the same at every later call",
                       "Read it before the call.");
  return t_state;
}
void set_generator_state(GeneratorState state) {
  refuse_while_tracing("set_generator_state", "it would act only while the callable is traced",
                       "Set it before the call.");
  t_state = state;
}
void manual_seed(uint64_t seed) {
  refuse_while_tracing("manual_seed", "it would act only while the callable is traced",
                       "Seed before the call.");
  t_state = {seed, 0};
}

namespace {
void go_to(GeneratorState place) {
  if (Tracer* tracer = current_tracer())
    tracer->set_random_place(place.offset);
  else
    t_state = place;
}
}  // namespace

GeneratorState random_place() {
  const Tracer* tracer = current_tracer();
  return tracer ? GeneratorState{0, tracer->random_place()} : t_state;
}
RandomReplay::RandomReplay(GeneratorState place) : after_(random_place()) { go_to(place); }
RandomReplay::~RandomReplay() { go_to(after_); }

RngPosition take_random(uint64_t blocks) {
  const RngPosition position{t_state.seed, t_state.offset, nullptr};
  t_state.offset += blocks;
  return position;
}

}  // namespace tandem
