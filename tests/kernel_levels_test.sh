#!/usr/bin/env bash
# A build for one instruction-set level (TANDEM_CPU_LEVELS) holds each family of CPU kernels at the level at which a build for all would
# run it on that processor, and no other; a build for all holds all levels of each. And a build that has no kernels for the processor
# says so. Arguments: the root of the repository, the library, the command, TANDEM_CPU_LEVELS, the levels of this architecture.
set -euo pipefail
kernels=$1/src/tandem/backends/cpu/kernels library=$2 command=$3 built=$4 levels=$5
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# The levels that a family with this mark must be there for.
wanted_levels() {
  local mark=$1 level all=() highest
  for level in $levels; do
    [[ $mark == one && $level != baseline ]] && continue
    [[ $mark == two && $level == avx512 ]] && continue
    all+=("$level")
  done
  [[ $built == all ]] && { echo "${all[*]}"; return; }
  for level in "${all[@]}"; do
    highest=$level
    if [[ $level == "$built" ]]; then break; fi
  done
  echo "$highest"
}

symbols=$(nm -C "$library" | grep -oE 'tandem::cpu::[a-z0-9]+::register_[a-z0-9_]+_kernels\(\)' | sort -u)
count=0
for file in "$kernels"/*.cpp; do
  family=$(grep -oE '^void register_[a-z0-9_]+_kernels\(\)' "$file" | sed 's/^void //; s/()$//' || true)
  [[ -n $family ]] || continue
  count=$((count + 1))
  [[ $(wc -l <<<"$family") == 1 ]] || fail "$file defines more than one family"
  mark=$(grep -m1 -oE '^// levels: [a-z]+' "$file" | sed 's/.* //' || true)  # where it ends (CMakeLists.txt)
  has=$(grep -F "::$family()" <<<"$symbols" | cut -d: -f5 | tr '\n' ' ' || true)
  for level in $(wanted_levels "$mark"); do
    [[ " $has" == *" $level "* ]] || fail "$family is not there for $level (it is for: $has)"
  done
  [[ $(wc -w <<<"$has") == $(wc -w <<<"$(wanted_levels "$mark")") ]] || fail "$family is there for $has, not for $(wanted_levels "$mark") alone"
done
((count > 15)) || fail "only $count families were found"

if [[ $built != all && $built != baseline && $levels == *avx2* ]]; then
  status=0
  out=$(TANDEM_ISA=baseline "$command" profile mlp --steps 1 --out /dev/null 2>&1) || status=$?
  [[ $status == 1 ]] || fail "without kernels for the processor the command ends with $status"
  [[ $out == *"has them for $built, and this process may use baseline alone"*"-DTANDEM_CPU_LEVELS=all"* ]] || fail "it says: $out"
  [[ $(wc -l <<<"$out") == 1 ]] || fail "it says more than one line: $out"
fi
echo "$count families; levels of this build: $built"
exit $((failures > 0))
