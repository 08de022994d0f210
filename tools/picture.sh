#!/usr/bin/env bash
# A picture of a run's report: the upper part of the HTML page, 1280 pixels wide, as headless Chromium draws it.
#
#   tools/picture.sh RUN OUT.png [HEIGHT]
#
# docs/images/report.png is of the demo's first run: make demo, then
#
#   tools/picture.sh build/demo/naive docs/images/report.png
set -euo pipefail
if [ $# -lt 2 ]; then
  sed -nE '2,8s/^# ?//p' "$0" >&2
  exit 2
fi
run=$1 out=$(realpath -m "$2") height=${3:-1560}
here=$(cd "$(dirname "$0")/.." && pwd)
bedplate=${BEDPLATE:-$here/.venv/bin/bedplate}
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
  echo "picture: needs Chromium (apt-get install chromium)" >&2
  exit 3
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$bedplate" report "$run" --html "$folder/report.html"
mkdir -p "$(dirname "$out")"
# The sandbox of Chromium does not start as root; the page holds no script and asks the network for nothing.
"$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --blink-settings=preferredColorScheme=1 \
  --window-size="1280,$height" --screenshot="$out" "file://$folder/report.html" 2>"$folder/log" >&2 || {
  cat "$folder/log" >&2
  exit 4
}
[ -s "$out" ] || { echo "picture: Chromium wrote no picture" >&2; exit 4; }
echo "$out: $(stat -c %s "$out") bytes"
