// How this process computes.
#include "tandem/train/machine.h"

#include "tandem/core/threads.h"
#include "tandem/train/config.h"

namespace tandem {

void check(const Machine& machine) {
  check_between("threads", machine.threads, 1, kMostThreads);
  check_between("conv-workspace", machine.conv_workspace, 0, kMostCount, " bytes");
}

MachineScope::MachineScope(const Machine& machine) {
  check(machine);
  if (machine.threads) before_.threads = threads();
  if (machine.tf32) before_.tf32 = tf32();
  if (machine.conv) before_.conv = convolution_choice().mode;
  if (machine.conv_workspace) before_.conv_workspace = static_cast<int64_t>(convolution_choice().workspace);
  if (machine.matmul) before_.matmul = matmul_choice().mode;
  apply(machine);
}

MachineScope::~MachineScope() { apply(before_); }

/// What is so already is left alone: another choice makes compiled functions compile again.
void MachineScope::apply(const Machine& machine) {
  if (machine.threads && *machine.threads != threads()) set_threads(static_cast<int>(*machine.threads));
  if (machine.tf32 && *machine.tf32 != tf32()) set_tf32(*machine.tf32);
  ConvolutionChoice conv = convolution_choice();
  const auto workspace =
      static_cast<size_t>(machine.conv_workspace.value_or(static_cast<int64_t>(conv.workspace)));
  const ChoiceMode mode = machine.conv.value_or(conv.mode);
  if (mode != conv.mode || workspace != conv.workspace)
    set_convolution_choice({.mode = mode, .workspace = workspace, .keep = conv.keep});
  MatmulChoice matmul = matmul_choice();
  if (machine.matmul && *machine.matmul != matmul.mode) set_matmul_choice({*machine.matmul, matmul.keep});
}

}  // namespace tandem
