"""Parquet that pyarrow writes is imported as it is; with pyarrow in an environment of its own (bench/peers/formats.txt)."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEDPLATE = pathlib.Path(os.environ.get("BEDPLATE", ROOT / "build/dev/src/cli/bedplate")).resolve()
WRITE = """
import pyarrow, pyarrow.parquet, sys
table = pyarrow.table({"n": list(range(100)), "t": ["text %d" % i for i in range(100)], "v": [[1.5] * (i % 5) for i in range(100)]})
pyarrow.parquet.write_table(table, sys.argv[1], row_group_size=30)
"""


@pytest.fixture
def source(peers, tmp_path):
    (tmp_path / "in").mkdir()
    subprocess.run([peers, "-c", WRITE, tmp_path / "in/rows.parquet"], check=True, timeout=60)
    return tmp_path


def bedplate(folder, python, *arguments):
    environment = dict(os.environ, BEDPLATE_PYTHON=python)
    return subprocess.run([BEDPLATE, "data", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_the_cases_of_the_package_pass_with_pyarrow(peers, tmp_path):
    pytest.importorskip("bedplate.data", reason="the package has no extension module here", exc_type=ImportError)
    command = [peers, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", tmp_path / "cases", ROOT / "python/tests/test_parquet.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and " passed" in done.stdout and "skipped" not in done.stdout, done.stdout[-4000:]


def test_pack_hands_parquet_over_to_python(peers, source):
    if subprocess.run([peers, "-c", "import bedplate.data"], capture_output=True).returncode != 0:
        pytest.skip("the package has no extension module here")
    for place, out in (("in/rows.parquet", "a"), ("in", "b"), ("in/{rows}.parquet", "c")):
        done = bedplate(source, peers, "pack", place, out, "--shard-samples", "40", "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["samples"], report["shards"], report["from"]) == (100, 3, "parquet")
    lines = [json.loads(line) for line in bedplate(source, peers, "cat", "a").stdout.splitlines()]
    assert lines == [{"n": i, "t": "text %d" % i, "v": [1.5] * (i % 5)} for i in range(100)]
    assert "nothing to do" in bedplate(source, peers, "pack", "in", "b", "--shard-samples", "40").stdout
    typed = bedplate(source, peers, "pack", "in", "d", "--schema", "n:u8")
    assert typed.returncode == 0, typed.stderr
    refused = bedplate(source, peers, "pack", "in", "b", "--shard-samples", "50")
    assert refused.returncode == 2 and "--shard-samples was 40, now it is 50" in refused.stderr
    other = bedplate(source, peers, "pack", "in", "e", "--shuffle", "7")
    assert other.returncode == 2 and "--shuffle is not for Parquet" in other.stderr


def test_a_python_without_pyarrow_or_without_the_package_says_so(peers, source):
    without = subprocess.run([sys.executable, "-c", "import bedplate.data, pyarrow"], capture_output=True, text=True)
    if "pyarrow" in without.stderr:
        done = bedplate(source, sys.executable, "pack", "in", "out")
        assert done.returncode == 3 and "pip install pyarrow" in done.stderr, done.stderr
    # No packages at all.
    bare = source / "bare"
    bare.write_text('#!/bin/sh\nexec "%s" -S -I "$@"\n' % sys.executable)
    bare.chmod(0o755)
    done = bedplate(source, str(bare), "pack", "in", "out")
    assert done.returncode == 3 and "Bedplate's Python package" in done.stderr and "Traceback" not in done.stderr
    done = bedplate(source, "/no/such/python", "pack", "in", "out")
    assert done.returncode == 3 and "/no/such/python" in done.stderr
    assert not (source / "out").exists()
