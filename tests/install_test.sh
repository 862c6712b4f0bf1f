#!/usr/bin/env bash
# Installs to an empty prefix, moves it, and uses it as a stranger would: find_package, pkg-config, the command. Then
# looks at what a user gets: no header of a third party, no symbol outside the namespace.
# Arguments: the root of the repository, the build folder.
set -euo pipefail
root=$1 build=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
fail() {
  echo "install_test: $*" >&2
  exit 1
}
export CCACHE_BASEDIR=$place

cmake --install "$build" --prefix "$place/first" >"$place/install.log" || { cat "$place/install.log"; fail "cmake --install"; }
mv "$place/first" "$place/prefix"
prefix=$place/prefix

"$prefix/bin/tandem" models >/dev/null || fail "the installed command does not run"
if [[ -x $prefix/bin/tandem-lab ]]; then
  TANDEM_LAB_HOME=$prefix/share/tandem/lab "$prefix/bin/tandem" lab list >/dev/null || fail "the installed lab does not run"
else
  echo "SKIPPED: the lab was not built (it needs toml++)"
fi

# The lab is a user's program: what it includes is installed, and it builds alone (here the part that uses most of the
# library; the others take minutes).
while read -r header; do
  [[ -e $prefix/include/$header ]] || fail "the lab includes $header, which is not installed"
done < <(grep -rhoE '^#include "tandem/[^"]+' "$root/lab/src" | cut -d'"' -f2 | sort -u)
if [[ -x $prefix/bin/tandem-lab ]]; then
  cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
  cmake -S "$root/lab" -B "$place/lab" -G Ninja -DCMAKE_CXX_FLAGS=-O0 -DCMAKE_UNITY_BUILD=ON -DCMAKE_PREFIX_PATH="$prefix;$(cached CMAKE_PREFIX_PATH)" \
    -DTOMLPLUSPLUS_INCLUDE_DIR="$(cached TOMLPLUSPLUS_INCLUDE_DIR)" >"$place/configure.log" ||
    { cat "$place/configure.log"; fail "the lab alone: find_package(Tandem)"; }
  cmake --build "$place/lab" --target lab_tandem_driver >"$place/build.log" ||
    { tail -n 40 "$place/build.log"; fail "the lab alone does not compile"; }
fi

cmake -S "$root/examples/custom_op" -B "$place/custom_op" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$place/configure.log" ||
  { cat "$place/configure.log"; fail "find_package(Tandem)"; }
cmake --build "$place/custom_op" >"$place/build.log" || { cat "$place/build.log"; fail "examples/custom_op does not compile"; }
"$place/custom_op/custom_op" || fail "examples/custom_op"

library=$(find "$prefix" -name 'libtandem.so')
if command -v pkg-config >/dev/null; then
  pc=$(dirname "$(find "$prefix" -name tandem.pc)")
  printf '#include <tandem/tandem.h>\n#include <cstdio>\nint main() { std::printf("%%g\\n", tandem::sum(tandem::ones({2, 3})).item<double>()); }\n' \
    >"$place/program.cpp"
  # shellcheck disable=SC2046
  ${CXX:-g++} "$place/program.cpp" -o "$place/program" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs tandem) ||
    fail "a program by pkg-config"
  # No LD_LIBRARY_PATH: what pkg-config says is enough to run it from any prefix.
  [[ $(env -u LD_LIBRARY_PATH "$place/program") == 6 ]] || fail "the program by pkg-config printed something else than 6"
else
  echo "SKIPPED: pkg-config is not installed"
fi

# By an older standard, every header gives one clear line, not the hundreds of errors that would follow.
while read -r header; do
  [[ $header == tandem/core/error.h ]] && continue  # includes nothing, and is plain C++17
  printf '#include <%s>\n' "$header" >"$place/older.cpp"
  if ${CXX:-g++} -std=c++17 -fsyntax-only -I"$prefix/include" "$place/older.cpp" 2>"$place/older.log"; then
    fail "$header compiles as C++17"
  fi
  [[ $(grep -E 'error: ' "$place/older.log" | head -1) == *"Tandem needs C++20"* ]] ||
    fail "$header by C++17: $(grep -E 'error: ' "$place/older.log" | head -1)"
  [[ $(grep -c 'error: ' "$place/older.log") -le 2 ]] || fail "$header by C++17 gives more than the one error"
done < <(cd "$prefix/include" && find tandem -name '*.h' | sort)

# Headers include each other and the standard library, nothing else.
if grep -rnE '^#include [<"]' "$prefix/include" | grep -vE '#include ("tandem/|<[a-z_]+>$)'; then
  fail "an installed header includes something of a third party"
fi
strangers=$(nm -DC --defined-only "$library" | cut -d' ' -f3- |
  grep -vE '^(tandem::|(typeinfo|typeinfo name|vtable|guard variable) for tandem::)' || true)
[[ -z $strangers ]] || fail "symbols outside the namespace are visible: $(head -5 <<<"$strangers")"
