#!/usr/bin/env bash
# Prints which files of a build took longest to compile, and how long each part of it took in all, from ninja's log. The times are
# those of a clock: build with one job (ninja -j1) and without ccache to compare them.
#   bash cmake/build_times.sh [BUILD_FOLDER (build/release)] [ROWS (25)]
set -euo pipefail
log=${1:-build/release}/.ninja_log rows=${2:-25}
[[ -r $log ]] || { echo "build_times: there is no $log; build first" >&2; exit 1; }
awk -F'\t' -v rows="$rows" '
  # One line per object: begin and end in ms, restat, output, hash. A later line of an object replaces an earlier one.
  $4 ~ /\.(o|gch)$/ { seconds[$4] = ($2 - $1) / 1000 }
  END {
    for (object in seconds) {
      name = object
      gsub(/CMakeFiles\/|\.dir|src\/tandem\/|\.o$/, "", name)
      part = name
      sub(/\/[^\/]*$/, "", part)
      sub(/\/Unity$/, "", part)
      in_part[part] += seconds[object]; count[part]++; all += seconds[object]; objects++
      names[name] = seconds[object]
    }
    printf "%8.1f s  all %d objects\n\n", all, objects
    sorted = "sort -rn | head -n " rows
    for (name in names) printf "%8.1f s  %s\n", names[name], name | sorted
    close(sorted)
    print ""
    for (part in in_part) printf "%8.1f s  %4d  %s\n", in_part[part], count[part], part | sorted
    close(sorted)
  }' "$log"
