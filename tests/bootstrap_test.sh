#!/usr/bin/env bash
# Runs a copy of ./tandem in an empty place where apt-get, cmake and ninja are stand-ins that write down how they were
# called, and checks what the script installs, builds and prints. Argument: the root of the repository.
set -euo pipefail
root=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/repository/src" "$place/repository/lab/src" "$place/repository/cmake" "$place/bin" "$place/later"
cp "$root/tandem" "$place/repository/"
cp "$root/cmake/test_jobs.sh" "$root/cmake/cpu_level.sh" "$place/repository/cmake/"
touch "$place/repository/CMakeLists.txt" "$place/repository/CMakePresets.json"
calls=$place/calls
: >"$calls"

# stand_in FOLDER NAME BODY: a program that logs its call, then runs BODY.
stand_in() {
  printf '#!/bin/bash\necho "%s $*" >>"%s"\n%s\n' "$2" "$calls" "$3" >"$place/$1/$2"
  chmod +x "$place/$1/$2"
}
for tool in bash env readlink find mkdir mv rm tee grep tail head cat flock chmod cp; do
  ln -s "$(command -v "$tool")" "$place/bin/$tool"
done
stand_in bin id 'echo 0'
stand_in bin g++ ''
stand_in bin ninja ''
stand_in bin ctest 'echo "long tests: ${TANDEM_LONG_TESTS:-no}"'
# cmake is missing at first; apt-get install brings it. It "builds" a program that prints its arguments.
stand_in bin apt-get "[[ \" \$* \" == *' install '* ]] || exit 0
for package; do
  case \$package in
    ccache) exit 100 ;;
    cmake) cp '$place/later/cmake' '$place/bin/cmake' ;;
  esac
done"
stand_in later cmake "[[ -e '$place/broken' && \$1 == --build ]] && { echo 'x.cpp:1: error: broken on purpose'; exit 1; }
case \$1 in
  --preset) mkdir -p \"\$4\"; echo 'rule' >\"\$4/build.ninja\" ;;
  --build) echo '[3/7] Building CXX object src/a.cpp.o'; mkdir -p \"\$2/bin\"; printf '#!/bin/bash\necho \"ran \$*\"\n' >\"\$2/bin/tandem\"; chmod +x \"\$2/bin/tandem\" ;;
esac"

tandem() { (unset TANDEM_BUILD_DIR TANDEM_CUDA TANDEM_CMAKE_ARGS; PATH=$place/bin "$place/repository/tandem" "$@"); }
failures=0
check() {
  local what=$1
  shift
  if "$@"; then echo "ok: $what"; else
    echo "FAILED: $what"
    failures=$((failures + 1))
  fi
}
called() { grep -qE "$1" "$calls"; }
not_called() { ! called "$1"; }

out=$(tandem info --json 2>"$place/err")
check "stdout holds what the program prints and nothing else" [ "$out" = "ran info --json" ]
check "what is missing is installed" called 'apt-get install .* cmake'
check "what is there is not installed" not_called 'apt-get install.*(g\+\+|ninja-build)'
check "a wished package that cannot be had is named" grep -q 'going on without the package ccache' "$place/err"
check "the release preset is configured" called 'cmake --preset release'
check "kernels are built for this machine" called "cmake .*-DTANDEM_CPU_LEVELS=$(bash "$root/cmake/cpu_level.sh")"
check "the program alone is built" called 'cmake --build .* --target tandem_cli$'

: >"$calls"
out=$(tandem train "two words" 2>"$place/err")
check "arguments arrive as they were given" [ "$out" = "ran train two words" ]
check "nothing is built or installed where nothing changed" not_called 'cmake|apt-get'
check "and nothing is said" [ ! -s "$place/err" ]

: >"$calls"
out=$(tandem lab list 2>"$place/err")
check "the lab is built beside the program" called 'cmake --build .* --target tandem_cli tandem_lab$'
check "and the program hands over to it" [ "$out" = "ran lab list" ]

: >"$calls"
touch "$place/repository/src/new.cpp"
tandem info >/dev/null 2>&1
check "a newer source is built" called 'cmake --build'
check "without configuring again" not_called 'cmake --preset'

: >"$calls"
out=$(unset TANDEM_LONG_TESTS; tandem test -R conv 2>/dev/null)
check "the tests are built, all of them" called 'cmake --build .* --target all$'
check "ctest gets the arguments" called 'ctest .*-R conv$'
check "two tests run at once where the number of cores is not known" called 'ctest .*--parallel 2 '
check "long tests are left out" [ "$out" = "long tests: no" ]

: >"$calls"
stand_in bin nproc 'echo 3'
out=$(tandem test --long -R "two words" 2>/dev/null)
check "as many tests run at once as there are cores, as far as there is memory" called 'ctest .*--parallel [23] '
check "long tests are run where that is asked for" [ "$out" = "long tests: 1" ]
check "and ctest gets the other arguments alone" called 'no-tests=error -R two words$'

: >"$calls"
(PATH=$place/bin TANDEM_CUDA=ON TANDEM_CMAKE_ARGS="-DA=1 -DB=2" TANDEM_BUILD_DIR=$place/elsewhere \
  "$place/repository/tandem" info >/dev/null 2>&1)
check "settings reach cmake" called "cmake --preset release -B $place/elsewhere -DTANDEM_CPU_LEVELS=[a-z0-9]+ -DTANDEM_CUDA=ON -DA=1 -DB=2"

if command -v script >/dev/null; then
  touch "$place/repository/src/new.cpp"
  PATH=$place/bin "$(command -v script)" -qec "'$place/repository/tandem' info" "$place/terminal" >/dev/null </dev/null
  check "a terminal shows how far the build is" grep -q '3 of 7' "$place/terminal"
fi

touch "$place/broken" "$place/repository/src/new.cpp"
status=0
tandem info >"$place/out" 2>"$place/err" || status=$?
check "a broken build ends with 1" [ "$status" = 1 ]
check "it shows the error" grep -q 'broken on purpose' "$place/err"
check "and names the log" grep -q 'the whole log is .*build.log' "$place/err"
check "and keeps stdout empty" [ ! -s "$place/out" ]
rm "$place/broken"
check "the build is tried again, though nothing changed since" [ "$(tandem info 2>/dev/null)" = "ran info" ]

# Two commands on cores of their own never share one; a third, where there are no more, runs all the same.
if (($(nproc) >= 2)) && command -v taskset >/dev/null; then
  own() { bash "$root/cmake/on_own_cores.sh" $(($(nproc) / 2)) "$place/cores" bash -c 'taskset -cp $$ | sed "s/.*: //"; sleep 1; exit 3'; }
  for i in 1 2 3; do (own >"$place/own$i" || echo "status $?" >>"$place/own$i") & done
  wait
  check "three commands ran, with their own exit status" [ "$(grep -l 'status 3' "$place"/own[123] | wc -l)" = 3 ]
  check "on three sets of cores" [ "$(sort -u <(head -qn1 "$place"/own[123]) | wc -l)" = 3 ]
fi

exit $((failures > 0))
