// A kernel is a plain function of its arguments and does not know which operation it belongs to. So there is a row of
// functions, one a place in the list of operations, each of which calls the kernel of its place and notes the time.
#include "lab/own/op_clock.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lab/own/prepared_cell.h"
#include "tandem/tandem.h"

namespace tandem::lab::own {
namespace {

constexpr size_t kPlaces = 1024;  // operations beyond these are not timed
constexpr auto kCpu = static_cast<size_t>(DeviceKind::cpu);

struct Place {
  KernelFn kernel = nullptr;
  int64_t calls = 0, ns = 0;
};
std::array<Place, kPlaces> g_places;
bool g_is_on = false;
thread_local int t_depth = 0;  // a kernel that calls another counts once

template <size_t kPlace>
void timed(const KernelArgs& args) {
  Place& place = g_places[kPlace];
  if (!g_is_on || t_depth > 0) return place.kernel(args);
  struct Depth {
    Depth() { ++t_depth; }
    ~Depth() { --t_depth; }
  } const depth;
  const int64_t begin = now_ns();
  place.kernel(args);
  place.ns += now_ns() - begin;
  ++place.calls;
}

template <size_t... kIndices>
constexpr std::array<KernelFn, kPlaces> make_row(std::index_sequence<kIndices...>) {
  return {&timed<kIndices>...};
}
constexpr std::array<KernelFn, kPlaces> kTimed = make_row(std::make_index_sequence<kPlaces>());

}  // namespace

OpClock::OpClock() {
  TD_CHECK(!g_is_on, "op clock: there must be one at a time; got a second.");
  const std::vector<OpDef*>& ops = all_ops();
  for (size_t i = 0; i < std::min(ops.size(), kPlaces); ++i) {
    KernelFn& kernel = ops[i]->kernels[kCpu];
    if (!kernel) continue;
    g_places[i].kernel = kernel;
    kernel = kTimed[i];
  }
  clear();
  g_is_on = true;
}

OpClock::~OpClock() {
  g_is_on = false;
  const std::vector<OpDef*>& ops = all_ops();
  for (size_t i = 0; i < std::min(ops.size(), kPlaces); ++i)
    if (ops[i]->kernels[kCpu] == kTimed[i]) ops[i]->kernels[kCpu] = g_places[i].kernel;
}

void OpClock::clear() {
  for (Place& place : g_places) place.calls = place.ns = 0;
}

std::vector<OpTime> OpClock::times() const {
  std::vector<OpTime> rows;
  const std::vector<OpDef*>& ops = all_ops();
  for (size_t i = 0; i < std::min(ops.size(), kPlaces); ++i)
    if (g_places[i].calls > 0) rows.push_back({ops[i]->name, g_places[i].calls, g_places[i].ns});
  std::stable_sort(rows.begin(), rows.end(), [](const OpTime& a, const OpTime& b) { return a.ns > b.ns; });
  return rows;
}

}  // namespace tandem::lab::own
