// The CPU's backend as one that records, for tests of what the graph engine hands to such a backend: recorded steps are
// run at each replay, and branches and loops within them as RecordedControl says. Nothing is read by the host between.
#pragma once

#include <cstring>

#include "tandem/core/backend.h"
#include "tandem/core/recorded_control.h"

namespace tandem::testing {

/// While it lives, the CPU records.
class RecordingCpu {
 public:
  explicit RecordingCpu(bool has_control = true) : before_(&backend(DeviceKind::cpu)) {
    auto mine = std::make_unique<Recorder>(*before_, has_control);
    recorder_ = mine.get();
    register_backend(DeviceKind::cpu, std::move(mine));
  }
  ~RecordingCpu() {
    register_backend(DeviceKind::cpu, std::unique_ptr<Backend>(before_));
    delete recorder_;
  }
  RecordingCpu(const RecordingCpu&) = delete;
  RecordingCpu& operator=(const RecordingCpu&) = delete;

  int recorded() const { return recorder_->recorded; }  // recordings made
  int replayed() const { return recorder_->replayed; }
  int waited() const { return recorder_->waited; }  // copies to the host
  /// Recording fails from now on.
  void refuse(const std::string& reason) { recorder_->refusal = reason; }

 private:
  class Control final : public RecordedControl {
   public:
    bool is_recording() const override { return is_recording_; }
    void branch(const bool* condition, const std::function<void()>& if_true,
                const std::function<void()>& if_false) override {
      if (*condition)
        if_true();
      else if (if_false)
        if_false();
    }
    void repeat(const bool* is_within, const bool* condition, bool,
                const std::function<void()>& run) override {
      while (*is_within && (!condition || *condition)) run();
    }
    void begin(LoopState* state, const LoopStart& start) override {
      *state = {};
      state->count = start.count_in ? *start.count_in : start.count;
      state->is_within = state->count > 0;
      if (!start.random) return;
      state->random[0] = start.random[0];
      state->random[1] = start.random[1] + start.random_offset;
      state->random_step = start.goes_back ? 0 - start.random_blocks : start.random_blocks;
      if (start.goes_back) state->random[1] += start.random_blocks * static_cast<uint64_t>(state->count - 1);
    }
    void advance(LoopState* state) override {
      state->is_within = ++state->run < state->count;
      state->random[1] += state->random_step;
    }
    void copy(const LoopState* state, std::span<const SliceCopy> copies, bool from_end) override {
      const int64_t slice = from_end ? state->count - 1 - state->run : state->run;
      for (const SliceCopy& c : copies)
        if (c.bytes)
          std::memcpy(c.to + (c.to_step ? c.to_step * slice : 0),
                      c.from + (c.from_step ? c.from_step * slice : 0), static_cast<size_t>(c.bytes));
    }
    bool is_recording_ = false;
  };

  struct InRecording {
    explicit InRecording(Control& control) : control(control) { control.is_recording_ = true; }
    ~InRecording() { control.is_recording_ = false; }
    Control& control;
  };

  struct Recorder final : Backend {
    Recorder(Backend& cpu, bool has_control) : cpu(cpu), has_control(has_control) {}
    Backend& cpu;
    bool has_control;
    Control control;
    int recorded = 0, replayed = 0, waited = 0;
    std::string refusal;

    struct Steps final : Recording {
      Steps(Recorder& recorder, std::vector<RecordStep> steps)
          : recorder(recorder), steps(std::move(steps)) {}
      void replay() override {
        ++recorder.replayed;
        const int before = recorder.waited;
        {
          const InRecording scope(recorder.control);
          for (const RecordStep& step : steps) step.launch();
        }
        TD_CHECK(recorder.waited == before, "test: a recorded step must not wait for the device; got ",
                 recorder.waited - before, " copies to the host.");
      }
      Recorder& recorder;
      std::vector<RecordStep> steps;
    };
    std::unique_ptr<Recording> record(Device, const std::vector<RecordStep>& steps) override {
      if (!refusal.empty()) throw Error(refusal, ErrorKind::device);
      ++recorded;
      return std::make_unique<Steps>(*this, steps);
    }
    bool records() const override { return true; }
    RecordedControl* recorded_control(Device) override { return has_control ? &control : nullptr; }

    int device_count() const override { return cpu.device_count(); }
    std::string describe(Device device) const override { return cpu.describe(device); }
    std::string arithmetic() const override { return cpu.arithmetic(); }
    void* allocate(Device device, size_t bytes) override { return cpu.allocate(device, bytes); }
    void free(Device device, void* data, size_t bytes) noexcept override { cpu.free(device, data, bytes); }
    MemoryStats memory(Device device) const override { return cpu.memory(device); }
    void reset_peak(Device device) override { cpu.reset_peak(device); }
    void empty_cache(Device device) override { cpu.empty_cache(device); }
    void* allocate_pinned(size_t bytes) override { return cpu.allocate_pinned(bytes); }
    void free_pinned(void* data, size_t bytes) noexcept override { cpu.free_pinned(data, bytes); }
    std::unique_ptr<Stream> make_stream(Device device) override { return cpu.make_stream(device); }
    std::shared_ptr<const Event> mark(Device device) override { return cpu.mark(device); }
    void wait(Device device, const Event& event) override { cpu.wait(device, event); }
    void hold_until(Device device, void* data, std::shared_ptr<const Event> event) override {
      cpu.hold_until(device, data, std::move(event));
    }
    void copy_from_host(Device device, void* to, const void* from, size_t bytes) override {
      cpu.copy_from_host(device, to, from, bytes);
    }
    void copy_to_host(Device device, void* to, const void* from, size_t bytes) override {
      ++waited;
      cpu.copy_to_host(device, to, from, bytes);
    }
    void copy_within(Device device, void* to, const void* from, size_t bytes) override {
      cpu.copy_within(device, to, from, bytes);
    }
    void copy_between(Device to_device, void* to, Device from_device, const void* from,
                      size_t bytes) override {
      cpu.copy_between(to_device, to, from_device, from, bytes);
    }
    void synchronize(Device device) override { cpu.synchronize(device); }
    DeviceContext& context(Device device) override { return cpu.context(device); }
    std::unique_ptr<FusedKernel> compile_fused(Device device,
                                               const std::vector<FusedProgram>& programs) override {
      return cpu.compile_fused(device, programs);
    }
    std::vector<DeviceActivity> watch(Device device, const std::function<void()>& work) override {
      return cpu.watch(device, work);
    }
  };

  Backend* const before_;
  Recorder* recorder_ = nullptr;
};

}  // namespace tandem::testing
