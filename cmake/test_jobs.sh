#!/usr/bin/env bash
# Prints how many tests to run at once: one for each core that may be used, as far as each has 2 GiB of memory; at least 2.
set -euo pipefail
jobs=2
if command -v nproc >/dev/null; then jobs=$(nproc); fi
if [[ -r /proc/meminfo ]]; then
  while read -r name kib _; do
    if [[ $name == MemAvailable: ]] && ((kib / 2097152 < jobs)); then jobs=$((kib / 2097152)); fi
  done </proc/meminfo
fi
if ((jobs < 2)); then jobs=2; fi
echo "$jobs"
