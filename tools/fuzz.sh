#!/usr/bin/env bash
# tools/fuzz.sh [SECONDS] [TARGET…]: each fuzzer (all of them by default) for so many seconds (60 by default), with
# AddressSanitizer and UBSan, beginning with fuzz/corpus. What is found goes to build/fuzz/found, new inputs that reach
# more go to build/fuzz/corpus. Exit 1 when something is found. Needs clang 16 or newer with its libFuzzer (clang 14 cannot read the
# ranges of g++ 12's library): apt install clang-16 libclang-rt-16-dev, on Debian 13 clang-19 libclang-rt-19-dev. FUZZ_CLANG names another.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
[[ $seconds =~ ^[0-9]+$ ]] || { echo "usage: tools/fuzz.sh [SECONDS] [TARGET…]" >&2; exit 2; }
shift || true
clang=${FUZZ_CLANG:-$(for version in 19 18 17 16; do command -v "clang++-$version" && break; done || true)}
[ -n "$clang" ] || { echo "no clang of version 16 or newer: apt install clang-16 libclang-rt-16-dev (Debian 13: clang-19 libclang-rt-19-dev)" >&2; exit 3; }
cmake --preset fuzz -DCMAKE_C_COMPILER="${clang/++/}" -DCMAKE_CXX_COMPILER="$clang" >/dev/null
known=$(ls fuzz/corpus)
targets=${*:-$known}
for target in $targets; do
  grep -qx "$target" <<<"$known" || { echo "there is no target $target; there are: $(tr '\n' ' ' <<<"$known")" >&2; exit 2; }
done
cmake --build build/fuzz --target $(printf 'fuzz_%s ' $targets)
status=0
mkdir -p build/fuzz/found
for target in $targets; do
  mkdir -p "build/fuzz/corpus/$target"
  echo "$target: $seconds s"
  "build/fuzz/fuzz/fuzz_$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/found/$target-" "build/fuzz/corpus/$target" "fuzz/corpus/$target" >"build/fuzz/$target.log" 2>&1 || status=1
  grep -E 'cov:|stat::number_of_executed_units|ERROR|SUMMARY' "build/fuzz/$target.log" | tail -n 3
done
exit $status
