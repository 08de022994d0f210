#!/usr/bin/env bash
# All tests of what `make build` and `make install` made; prints one line a suite and a last line "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."
export BEDPLATE=$PWD/.venv/bin/bedplate
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
  grep -E '^SKIPPED|^\[  SKIPPED|Skipped$' "$log" | sort | uniq -c | head -n 40
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  rm -f "$log"
}

suite layers tools/check_layers.py
suite headers tools/check_headers.sh
suite format tools/check_format.sh
suite c++ ctest --test-dir build/ci --output-on-failure -j "$(nproc)" --timeout 180
suite hook $python -m pytest -q python/tests
suite e2e $python -m pytest -q tests/e2e
suite docs $python -m pytest -q tests/docs
suite provoke $python -m pytest -q tests/provoke
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
