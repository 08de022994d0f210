#!/usr/bin/env bash
# The peers' virtual environment, build/peers-data: idempotent.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=${BEDPLATE_PEERS:-build/peers-data}
[ ! -e "$venv/.done" ] || exit 0
python3 -m venv "$venv"
pip() { "$venv/bin/python" -m pip install -q --disable-pip-version-check "$@" 2> >(grep -v '^WARNING: Location' >&2); }
pip torch==2.13.0 numpy
grep -v '^#' bench/peers/data.txt | while read -r package; do
  pip "$package" || echo "setup: $package could not be had"
done
pip --no-deps mosaicml-streaming litdata || echo "setup: mosaicml-streaming or litdata could not be had"
"$venv/bin/python" -m pip freeze >"$venv/.done"
