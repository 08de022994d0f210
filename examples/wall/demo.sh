#!/usr/bin/env bash
# The demonstration: the same small GPT on the Python installation's own source, first as people write it, then mended.
# Bedplate says which walls the first one hits; `compare` says what mending them brought. Results: build/demo/.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=$PWD/.venv/bin
out=$PWD/build/demo
steps=${STEPS:-72}

if ! "$bin/python" -c 'import torch' 2>/dev/null; then
  echo "demo: needs PyTorch in .venv; tools/setup.sh says why there is none and how to get it" >&2
  exit 3
fi
rm -rf "$out"
mkdir -p "$out"

say() { printf '\n\033[1m== %s\033[0m\n\n' "$*"; }
[ -t 1 ] || say() { printf '\n== %s\n\n' "$*"; }

say "1 of 3: the job as people write it (examples/wall/naive.py, 2 ranks)"
"$bin/bedplate" run --out "$out/naive" --html "$out/naive.html" -- \
  "$bin/torchrun" --standalone --nproc-per-node 2 examples/wall/naive.py --steps "$steps" --out "$out/naive-checkpoints"

say "2 of 3: the same job, mended as the report says (examples/wall/mended.py)"
"$bin/bedplate" run --out "$out/mended" --html "$out/mended.html" -- \
  "$bin/torchrun" --standalone --nproc-per-node 2 examples/wall/mended.py --steps "$steps" --out "$out/mended-checkpoints"

say "3 of 3: what was gained (bedplate compare)"
"$bin/bedplate" compare "$out/naive" "$out/mended"

echo
echo "Look at build/demo/naive.html and build/demo/mended.html in a browser; bedplate report build/demo/naive prints the report again."
