#!/usr/bin/env bash
# All tests of what `make build` and `make install` made; prints one line a suite and a last line "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."
export BEDPLATE=$PWD/.venv/bin/bedplate
export BEDPLATE_STORE_TESTS=$PWD/build/ci/src/store/store_tests
python=.venv/bin/python
passed=0 failed=0 skipped=0

# suite NAME COMMAND…: runs it, adds its counts (of ctest or pytest; one for other commands), keeps going.
suite() {
  local name=$1 log status=0 start p=0 f=0 s=0
  shift
  log=$(mktemp)
  start=$SECONDS
  "$@" >"$log" 2>&1 || status=$?
  if grep -qE '^[0-9]+% tests passed' "$log"; then
    local total
    total=$(sed -nE 's/.*tests failed out of ([0-9]+).*/\1/p' "$log" | tail -n 1)
    f=$(sed -nE 's/.*tests passed, ([0-9]+) tests failed.*/\1/p' "$log" | tail -n 1)
    s=$(grep -cE '\*\*\*Skipped' "$log" || true)
    p=$((total - f - s))
  elif grep -qE '(passed|failed|error|skipped).* in [0-9.]+s' "$log"; then
    local line
    line=$(grep -E '(passed|failed|error|skipped).* in [0-9.]+s' "$log" | tail -n 1)
    p=$(grep -oE '[0-9]+ passed' <<<"$line" | grep -oE '[0-9]+' || echo 0)
    f=$(($(grep -oE '[0-9]+ failed' <<<"$line" | grep -oE '[0-9]+' || echo 0) + $(grep -oE '[0-9]+ errors?' <<<"$line" | grep -oE '[0-9]+' || echo 0)))
    s=$(grep -oE '[0-9]+ skipped' <<<"$line" | grep -oE '[0-9]+' || echo 0)
  elif [ $status -eq 0 ]; then p=1; fi
  [ $status -eq 0 ] || [ "$f" -gt 0 ] || f=1
  printf '%-12s %4d passed %3d failed %3d skipped  %4d s\n' "$name" "$p" "$f" "$s" $((SECONDS - start))
  if [ $status -ne 0 ]; then tail -n 150 "$log"; fi
  sed -nE '/^(UNSTABLE|SKIPPED)/p; s/^\t? *[0-9]+ - ([^ ]*).* \(Skipped\)$/SKIPPED \1/p' "$log" | sort | uniq -c | head -n 40
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  rm -f "$log"
}

# pytests FOLDER: what failed is run once more, alone. Tests that run whole jobs share two processors with each other's leftovers;
# one that passes the second time is named as unstable and counts as passed.
pytests() {
  local first second status=0
  first=$(mktemp) second=$(mktemp)
  $python -m pytest -q "$1" >"$first" 2>&1 || status=$?
  cat "$first"
  if [ $status -eq 1 ]; then
    echo "once more, what failed:"
    status=0
    $python -m pytest -q --last-failed --last-failed-no-failures none "$1" >"$second" 2>&1 || status=$?
    sed -E 's/ in [0-9.]+s.*$/ (second run)/' "$second"
    if [ $status -eq 0 ]; then
      # The first run's summary, with what it called failed counted as passed, is the line that suite() reads.
      awk '/ in [0-9.]+s/ { for (i = 1; i < NF; i++) { if ($(i+1) ~ /^(passed|failed|errors?),?$/) p += $i; if ($(i+1) ~ /^skipped,?$/) k += $i } }
           END { printf "%d passed, %d skipped in 0.0s\n", p, k }' "$first"
      grep -E '^(FAILED|ERROR)' "$first" | sed 's/^/UNSTABLE: /'
    fi
  fi
  rm -f "$first" "$second"
  return $status
}

suite layers tools/check_layers.py
suite names tools/check_names.py
suite headers tools/check_headers.sh
suite format tools/check_format.sh
suite c++ ctest --test-dir build/ci --output-on-failure -j "$(nproc)" --timeout 180 --repeat until-pass:2
suite stores pytests tests/stores
suite hook pytests python/tests
suite e2e pytests tests/e2e
suite formats pytests tests/formats
suite trainers pytests tests/trainers
suite cost pytests tests/cost
suite docs pytests tests/docs
suite provoke pytests tests/provoke
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
