#!/bin/sh
# Writes the golden files anew: the sample reports' texts (src/doctor/testdata) and the reports of the recorded runs
# (tests/golden). Read the difference with `git diff` before you commit it: every changed line is a changed answer.
#
#   tools/update_golden.sh [BUILD_FOLDER]                          # build/dev
#
# A new recorded run: tests/provoke/record.py NAME tests/golden/NAME, then this script.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/dev}
cmake --build "$build" --target doctor_tests
BEDPLATE_UPDATE_GOLDEN=1 "$build/src/doctor/doctor_tests" --gtest_brief=1 \
  --gtest_filter='RenderText.LooksAsItIsKept:GoldenRuns.AreJudgedAsTheyWere:*GoldenFilesSay*'
git --no-pager diff --stat -- src/doctor/testdata tests/golden
