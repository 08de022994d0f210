#!/usr/bin/env bash
# The C++ sources are formatted by the committed .clang-format (version 14, Debian 12's; others differ in details and are not asked).
set -euo pipefail
cd "$(dirname "$0")/.."
formatter=$(command -v clang-format-14 || true)
[ -n "$formatter" ] || { echo "format: not checked: clang-format-14 is not installed"; exit 0; }
git ls-files 'src/*.h' 'src/*.cc' 'include/*.h' 'fuzz/*.h' 'fuzz/*.cc' | xargs "$formatter" --dry-run --Werror && echo "format: clean"
