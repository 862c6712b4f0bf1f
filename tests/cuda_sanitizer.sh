#!/usr/bin/env bash
# NVIDIA's compute-sanitizer over the CUDA kernels: every op case, and a training step of each model. For a machine with a GPU.
#   bash tests/cuda_sanitizer.sh [BUILD_FOLDER (build/release)] [TOOL ... (memcheck racecheck synccheck initcheck)]
# What cuDNN, cuBLAS and the other libraries do inside their own kernels is not judged by initcheck: they read padding on purpose.
# Each run writes its log to BUILD_FOLDER/sanitizer; ends with 1 where one found something.
set -euo pipefail
build=${1:-build/release}
shift || true
tools=("$@")
((${#tools[@]})) || tools=(memcheck racecheck synccheck initcheck)
sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
[[ -x $sanitizer ]] || { echo "cuda_sanitizer: compute-sanitizer is missing; it comes with the CUDA toolkit" >&2; exit 2; }
mkdir -p "$build/sanitizer"
failed=0

# check TOOL SUITE: the tests of one suite under one tool.
check() {
  local tool=$1 suite=$2 log options=() begin=$SECONDS
  log=$build/sanitizer/$tool.$suite.log
  if [[ $tool == initcheck ]]; then options+=(--kernel-name-exclude kernel_substring=cudnn --kernel-name-exclude kernel_substring=cublas --kernel-name-exclude kernel_substring=cutlass); fi
  if TANDEM_TF32=0 "$sanitizer" --tool "$tool" --error-exitcode 99 "${options[@]}" \
    "$build/bin/tandem_tests" --gtest_filter="*/$suite.*" --gtest_brief=1 >"$log" 2>&1; then
    printf 'clean     %-10s %s (%d s)\n' "$tool" "$suite" $((SECONDS - begin))
  else
    printf 'FOUND     %-10s %s (%d s): %s; see %s\n' "$tool" "$suite" $((SECONDS - begin)) "$(tail -n 1 "$log")" "$log"
    failed=1
  fi
}
for tool in "${tools[@]}"; do
  check "$tool" OpCasesOnCuda
  check "$tool" ZooOnCuda
done
exit $failed
