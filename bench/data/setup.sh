#!/usr/bin/env bash
# The peers' virtual environment, build/peers-data: idempotent; goes on when the list of packages has changed.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=${BEDPLATE_PEERS:-build/peers-data}
list=$(cat bench/peers/data.txt bench/data/setup.sh | sha256sum)
[ "$(head -n 1 "$venv/.done" 2>/dev/null)" != "# $list" ] || exit 0
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
pip() { "$venv/bin/python" -m pip install -q --disable-pip-version-check "$@" 2> >(grep -v '^WARNING: Location' >&2); }
pip torch==2.13.0 numpy==2.4.6
grep -v '^#' bench/peers/data.txt | while read -r package; do
  pip "$package" || echo "setup: $package could not be had"
done
pip --no-deps mosaicml-streaming==0.13.0 litdata==0.2.76 || echo "setup: mosaicml-streaming or litdata could not be had"
pip --no-deps scikit-learn==1.9.1 scikit-image==0.26.0 || echo "setup: scikit-learn or scikit-image could not be had"
{ echo "# $list"; "$venv/bin/python" -m pip freeze; } >"$venv/.done"
