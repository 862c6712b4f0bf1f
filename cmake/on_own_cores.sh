#!/usr/bin/env bash
# on_own_cores.sh COUNT FOLDER COMMAND...: runs the command on so many cores that no other such command uses meanwhile. The library
# starts a thread for every core that it may use: many tests at once, each on all cores, would mostly wait for one another.
# Where there are no free cores left, or no way to choose some, the command runs on all.
set -euo pipefail
count=$1 folder=$2
shift 2
if command -v taskset >/dev/null && command -v flock >/dev/null && mkdir -p "$folder"; then
  cores=()
  IFS=, read -ra ranges <<<"$(taskset -cp $$ | grep -oE '[0-9,-]+$')"  # "0-3,8"
  for range in "${ranges[@]}"; do
    for ((core = ${range%-*}; core <= ${range#*-}; ++core)); do cores+=("$core"); done
  done
  for ((first = 0; first + count <= ${#cores[@]}; first += count)); do
    own=${cores[*]:first:count}
    own=${own// /,}
    exec 9>"$folder/cores-$own"
    if flock -n 9; then exec taskset -c "$own" "$@"; fi  # the lock goes with the process
  done
  exec 9>&-
fi
exec "$@"
