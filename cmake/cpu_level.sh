#!/usr/bin/env bash
# Prints the highest instruction-set level of the CPU kernels that this machine runs (TANDEM_CPU_LEVELS in CMakeLists.txt), or "all"
# where it cannot tell.
set -euo pipefail
level=all
if [[ $HOSTTYPE == x86_64 && -r /proc/cpuinfo ]]; then
  flags=" $(grep -m1 '^flags' /proc/cpuinfo) "
  has() {
    local flag
    for flag; do [[ $flags == *" $flag "* ]] || return 1; done
  }
  level=baseline
  if has avx2 fma; then level=avx2; fi
  if has avx2 fma avx512f avx512dq avx512vl avx512bw; then level=avx512; fi
fi
echo "$level"
