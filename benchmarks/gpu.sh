#!/usr/bin/env bash
# On a machine with a GPU: builds with CUDA into build/gpu, runs the tests that need a GPU, times Tandem against
# PyTorch, and prints a short table last.
#
#   benchmarks/gpu.sh [--no-tests] [--no-bench] [arguments of bench.py, e.g. --quick --cases lenet_train]
#
# Environment: TANDEM_CMAKE_ARGS  more arguments for cmake (-DCMAKE_PREFIX_PATH=… for packages in folders of their own)
#              TANDEM_CUDA_ARCHS  what to compile for (default 90-real)
#              OUT                a folder for the full logs (default build/gpu/logs)
#              CUDNN_PATH         cuDNN's folder; found in the toolkit or beside Python's packages by itself
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

run_tests=yes run_bench=yes bench_args=()
for argument in "$@"; do
  case $argument in
    --no-tests) run_tests=no ;;
    --no-bench) run_bench=no ;;
    *) bench_args+=("$argument") ;;
  esac
done
logs=${OUT:-build/gpu/logs}
mkdir -p "$logs"
rows=()
failed=0
# note NAME RESULT SECONDS: a row of the table
note() { rows+=("$(printf '%-10s %-34s %6s s' "$1" "$2" "$3")"); }

# cuDNN and cuBLASLt may come with PyTorch rather than with the toolkit.
packages=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null)
if [ -z "${CUDNN_PATH:-}" ] && [ -n "$packages" ] && [ -f "$packages/cudnn/include/cudnn.h" ]; then
  found=no
  for folder in "${CUDA_HOME:-/usr/local/cuda}/include" /usr/include /usr/local/include /usr/include/*-linux-gnu; do
    [ -f "$folder/cudnn.h" ] && found=yes
  done
  [ $found = no ] && export CUDNN_PATH="$packages/cudnn"
fi
if [ -n "${CUDNN_PATH:-}" ]; then
  export LD_LIBRARY_PATH="$CUDNN_PATH/lib:$CUDNN_PATH/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi

start=$SECONDS
generator=()
command -v ninja >/dev/null && [ ! -f build/gpu/Makefile ] && generator=(-G Ninja)
# shellcheck disable=SC2086  # several arguments in one variable, by intent
if cmake -S . -B build/gpu "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DTANDEM_CUDA=ON \
     -DTANDEM_CUDA_ARCHITECTURES="${TANDEM_CUDA_ARCHS:-90-real}" ${TANDEM_CMAKE_ARGS:-} >"$logs/configure.log" 2>&1 &&
   cmake --build build/gpu -j16 >"$logs/build.log" 2>&1; then
  note build done $((SECONDS - start))
else
  note build FAILED $((SECONDS - start))
  tail -n 5 "$logs/configure.log"
  grep -hE -A3 'error|FAILED|undefined' "$logs/build.log" 2>/dev/null | head -n 60
  printf '%s\n' "${rows[@]}"
  exit 1
fi
build/gpu/bin/tandem info 2>&1 | tee "$logs/info.log"

if [ $run_tests = yes ]; then
  start=$SECONDS
  : >"$logs/tests.log"
  status=0
  for tests in --file=cuda_test.cpp --file=cuda_f32_test.cpp '--gtest_filter=*OpCasesOnCuda*'; do
    build/gpu/bin/tandem_tests "$tests" >>"$logs/tests.log" 2>&1 || status=1
  done
  passed=$(grep -c '^\[       OK \]' "$logs/tests.log")
  skipped=$(grep -c '^\[  SKIPPED \].*ms)' "$logs/tests.log")
  # The first lines of each failure, then the names.
  grep -E -A4 'Failure$' "$logs/tests.log" | head -n 60
  grep -E '^\[  FAILED  \].*ms)' "$logs/tests.log" | head -n 40
  if [ $status = 0 ] && [ "$skipped" = 0 ]; then
    note tests "$passed passed" $((SECONDS - start))
  else
    failed=1
    count=$(grep -c '^\[  FAILED  \].*ms)' "$logs/tests.log")
    note tests "$passed passed, $count FAILED, $skipped skipped" $((SECONDS - start))
  fi
fi

if [ $run_bench = yes ]; then
  start=$SECONDS
  if python3 benchmarks/bench.py --device cuda --tandem build/gpu/bin/tandem_peer --json "$logs/bench.json" \
       "${bench_args[@]}" 2>&1 | tee "$logs/bench.log"; then
    note bench done $((SECONDS - start))
  else
    failed=1
    note bench "FAILED (see bench.log)" $((SECONDS - start))
  fi
fi

echo
printf '%s\n' "${rows[@]}"
exit $failed
