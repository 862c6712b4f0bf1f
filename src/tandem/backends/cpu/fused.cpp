#include "tandem/backends/cpu/fused.h"

#include <algorithm>

// The walks of the baseline level are plain data movement: fast enough at any level.
#define TD_ISA fused_walks
#include "tandem/backends/cpu/kernels/iterate.h"
#undef TD_ISA
#include "tandem/backends/cpu/thread_memory.h"
#include "tandem/core/threads.h"

namespace tandem::cpu {

namespace {

using namespace fused_walks;

/// A program with its loops looked up and its tile memory laid out. Registers that are neither inputs nor outputs share
/// tiles: a register's tile is free again after its last use.
class TiledProgram {
 public:
  explicit TiledProgram(const FusedProgram& program) : program_(program) {
    const int inputs = static_cast<int>(program_.inputs.size());
    const int registers = inputs + static_cast<int>(program_.steps.size());
    for (const auto& in : program_.inputs) type_of_.push_back(in.dtype);
    std::vector<int> last_use(static_cast<size_t>(registers), -1);
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      const auto& step = program_.steps[s];
      loops_.push_back(step.op->tile(type_of_[static_cast<size_t>(step.in[step.in.size() - 1])], step.dtype));
      TD_ASSERT(loops_.back(), "no loop for ", step.op->name);
      type_of_.push_back(step.dtype);
      for (int r : step.in) last_use[static_cast<size_t>(r)] = static_cast<int>(s);
    }
    output_of_.assign(static_cast<size_t>(registers), -1);
    for (size_t o = 0; o < program_.outputs.size(); ++o) {
      const size_t r = static_cast<size_t>(program_.outputs[o]);
      output_of_[r] = static_cast<int>(o);
      last_use[r] = static_cast<int>(program_.steps.size());  // kept to the end of the tile
    }
    tile_of_.assign(static_cast<size_t>(registers), -1);
    std::vector<int> free;
    const auto take = [&] {
      if (free.empty()) return tiles_++;
      const int tile = free.back();
      free.pop_back();
      return tile;
    };
    for (int i = 0; i < inputs; ++i) tile_of_[static_cast<size_t>(i)] = take();
    for (size_t s = 0; s < program_.steps.size(); ++s) {
      const size_t target = static_cast<size_t>(inputs) + s;
      tile_of_[target] = take();
      for (int r : program_.steps[s].in)
        if (last_use[static_cast<size_t>(r)] == static_cast<int>(s) &&
            tile_of_[static_cast<size_t>(r)] >= 0 &&
            std::find(free.begin(), free.end(), tile_of_[static_cast<size_t>(r)]) == free.end())
          free.push_back(tile_of_[static_cast<size_t>(r)]);
    }
  }

  void run(const Buffer* in_buffers, Buffer* out_buffers) const {
    const int64_t n = size_of(program_.shape);
    if (n == 0) return;
    const size_t inputs = program_.inputs.size();
    std::vector<Walk> walks(inputs);
    for (size_t i = 0; i < inputs; ++i) {
      const auto& in = program_.inputs[i];
      const Buffer laid{in_buffers[i].data, program_.shape.data(), in.strides.data(), program_.shape.rank(),
                        in.dtype};
      walks[i] = walk_over(laid, program_.shape.data(), program_.shape.rank());
    }
    // An output that is updated in place is written at the end of each tile, when nothing reads the old values any more.
    SmallVector<bool, 8> late(program_.outputs.size());
    for (size_t o = 0; o < late.size(); ++o) {
      late[o] = false;
      for (size_t i = 0; i < inputs; ++i) late[o] = late[o] || out_buffers[o].data == in_buffers[i].data;
    }
    parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) {
      const size_t tile_bytes = kTile * 8;
      char* tiles = static_cast<char*>(
          thread_scratch(ScratchSlot::fused_tiles, static_cast<size_t>(tiles_) * tile_bytes));
      SmallVector<const void*, 16> at(inputs + program_.steps.size());
      SmallVector<int64_t, 16> stride(inputs + program_.steps.size());
      for (int64_t from = begin; from < end; from += kTile) {
        const int64_t count = end - from < kTile ? end - from : kTile;
        for (size_t i = 0; i < inputs; ++i) {
          stride[i] = walks[i].is_scalar() ? 0 : 1;
          at[i] = stride[i]
                      ? run_of(walks[i], from, count, tiles + static_cast<size_t>(tile_of_[i]) * tile_bytes)
                      : walks[i].data;
        }
        for (size_t s = 0; s < program_.steps.size(); ++s) {
          const auto& step = program_.steps[s];
          const void* in[4];
          int64_t steps[4];
          for (size_t k = 0; k < step.in.size(); ++k) {
            in[k] = at[static_cast<size_t>(step.in[k])];
            steps[k] = stride[static_cast<size_t>(step.in[k])];
          }
          const size_t target = inputs + s;
          const int o = output_of_[target];
          char* out = o >= 0 && !late[static_cast<size_t>(o)]
                          ? out_buffers[o].as<char>() + from * static_cast<int64_t>(bytes_of(step.dtype))
                          : tiles + static_cast<size_t>(tile_of_[target]) * tile_bytes;
          loops_[s](in, steps, out, count);
          at[target] = out;
          stride[target] = 1;
        }
        for (size_t o = 0; o < program_.outputs.size(); ++o) {
          const size_t from_register = static_cast<size_t>(program_.outputs[o]);
          const int64_t width = static_cast<int64_t>(bytes_of(type_of_[from_register]));
          char* target = out_buffers[o].as<char>() + from * width;
          if (at[from_register] == target) continue;
          if (stride[from_register] == 1)
            std::memcpy(target, at[from_register], static_cast<size_t>(count * width));
          else
            for (int64_t k = 0; k < count; ++k)
              std::memcpy(target + k * width, at[from_register], static_cast<size_t>(width));
        }
      }
    });
  }

 private:
  FusedProgram program_;
  std::vector<TileFn> loops_;
  std::vector<DType> type_of_;  // by register
  std::vector<int> output_of_;  // by register: an output that it is, or -1
  std::vector<int> tile_of_;    // by register
  int tiles_ = 0;
};

class TiledPrograms : public FusedKernel {
 public:
  explicit TiledPrograms(const std::vector<FusedProgram>& programs) {
    for (const FusedProgram& p : programs)
      programs_.push_back({TiledProgram(p), p.inputs.size(), p.outputs.size()});
  }
  void run(const KernelArgs& args) override {
    const Buffer* in = args.in;
    Buffer* out = args.out;
    for (const Part& part : programs_) {
      part.program.run(in, out);
      in += part.inputs;
      out += part.outputs;
    }
  }

 private:
  struct Part {
    TiledProgram program;
    size_t inputs, outputs;
  };
  std::vector<Part> programs_;
};

}  // namespace

std::unique_ptr<FusedKernel> compile_fused(const std::vector<FusedProgram>& programs) {
  return std::make_unique<TiledPrograms>(programs);
}

}  // namespace tandem::cpu
