"""What a sample costs the loader, counted in instructions by callgrind: the same on a busy machine and on a quiet one."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLES = 8192
# Of user space, reads by system calls and by mappings included; 512 bytes of tokens a sample. Measured plus a quarter.
MOST = 2000


def bench():
    for build in ("ci", "dev"):
        path = ROOT / "build" / build / "src/data/loader_bench"
        if path.exists():
            return path
    pytest.skip("build/ci/src/data/loader_bench was not built")


def instructions(folder, epochs):
    out = folder / ("callgrind-%d" % epochs)
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=%s" % out, bench(), folder / "shards", str(SAMPLES), str(epochs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=dict(os.environ, BEDPLATE_READ_ENGINE="threads"))
    assert done.returncode == 0, done.stderr[-2000:]
    return int(re.search(r"Collected : (\d+)", done.stderr).group(1))


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_a_sample_costs_few_instructions(tmp_path):
    subprocess.run([bench(), tmp_path / "shards", str(SAMPLES), "1"], check=True, timeout=60, stdout=subprocess.DEVNULL)
    # The second and third epoch: opening, the first checks of checksums and start-up are in both runs.
    each = (instructions(tmp_path, 3) - instructions(tmp_path, 1)) / (2 * SAMPLES)
    print("%.0f instructions a sample" % each)
    assert each < MOST
