#!/usr/bin/env bash
# Every header compiles alone (those of the BPF programs are C for another machine): each is handed to the compiler as a file of its own, with the flags of build/ci or build/dev.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(ls -d build/ci build/dev 2>/dev/null | head -n 1) || true
[ -n "${build:-}" ] || { echo "check_headers: configure first: cmake --preset dev"; exit 3; }
flags=(-std=c++20 -fsyntax-only -Wall -Wextra -Isrc -Iinclude "-I$build/generated" $(pkg-config --cflags sqlite3))
export CHECK_HEADERS_FLAGS="${flags[*]}"
git ls-files 'src/*.h' 'include/*.h' ':!src/probe/bpf' | xargs -P "$(nproc)" -n 1 bash -c '
  g++ $CHECK_HEADERS_FLAGS -x c++ "$0" 2>&1 | grep -v "pragma once in main file" | grep -A5 "error:" && { echo "check_headers: $0 does not compile alone"; exit 1; }
  exit 0' && echo "headers: $(git ls-files 'src/*.h' 'include/*.h' ':!src/probe/bpf' | wc -l) compile alone"
