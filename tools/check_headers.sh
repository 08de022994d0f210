#!/usr/bin/env bash
# Every header compiles alone (those of the BPF programs are C for another machine). A header that its own .cc includes first, before
# anything else, has been shown by the build to do so; each of the others is handed to the compiler as a file of its own, with the flags of
# build/ci or build/dev.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(ls -d build/ci build/dev 2>/dev/null | head -n 1) || true
[ -n "${build:-}" ] || { echo "check_headers: configure first: cmake --preset dev"; exit 3; }
flags=(-std=c++20 -fsyntax-only -Wall -Wextra -Isrc -Iinclude "-I$build/generated" $(pkg-config --cflags sqlite3))
export CHECK_HEADERS_FLAGS="${flags[*]}"

mapfile -t headers < <(git ls-files 'src/*.h' 'include/*.h' ':!src/probe/bpf')
alone=()
for header in "${headers[@]}"; do
  source=${header%.h}.cc
  first=$(grep -m 1 '^#include' "$source" 2>/dev/null || true)
  [ "$first" = "#include \"${header#src/}\"" ] || alone+=("$header")
done
printf '%s\n' "${alone[@]}" | xargs -P "$(nproc)" -n 1 bash -c '
  g++ $CHECK_HEADERS_FLAGS -x c++ "$0" 2>&1 | grep -v "pragma once in main file" | grep -A5 "error:" && { echo "check_headers: $0 does not compile alone"; exit 1; }
  exit 0' && echo "headers: ${#headers[@]} compile alone, ${#alone[@]} of them tried here"
