"""What findings tell a user to write is there: each command, each argument, and all of it in one go."""
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, bedplate

RULES = Path(ROOT / "src/doctor/rules")


def texts():
    """The rules' string literals, joined as the compiler joins them."""
    for path in sorted(RULES.glob("*.cc")):
        if not path.name.endswith("_test.cc"):
            yield path.name, re.sub(r'"\s*\n\s*"', "", path.read_text()).replace('\\"', '"')


def test_every_command_that_a_fix_names_is_one(tmp_path):
    commands = {found for _, text in texts() for found in re.findall(r"bedplate ((?:data|cache) [a-z]+)", text)}
    assert {"data pack", "data index", "cache warm", "cache stat", "cache drop"} <= commands
    for command in commands - {"data plane"}:
        assert bedplate(*command.split(), "--help", cwd=tmp_path).returncode == 0, command


def test_every_argument_that_a_fix_names_is_one():
    data = pytest.importorskip("bedplate.data", reason="the package has no extension module here", exc_type=ImportError)
    named = set()
    for name, text in texts():
        for called, arguments in re.findall(r"\b(Loader|Dataset)\(([^()]*(?:\([^()]*\)[^()]*)?)\)", text):
            given = re.findall(r"\b([a-z_]+)=", re.sub(r"Dataset\([^()]*\)", "", arguments))
            named.update((called, one) for one in given)
            known = inspect.signature(getattr(data, called)).parameters
            assert set(given) <= set(known), f"{name}: {called}({arguments})"
    assert {("Loader", "threads"), ("Loader", "prefetch"), ("Loader", "shuffle"), ("Dataset", "cache")} <= named


MENDED = """
import mmap, os, sys
import numpy as np
from bedplate.data import Dataset, Loader

folder = sys.argv[1]
os.chdir(folder)
plain = list(Loader(Dataset("SHARDS/"), 16, shuffle="block", threads=2, prefetch=1 << 20))
cached = list(Loader(Dataset("SHARDS/", cache=folder + "/cache:200MB"), 16, shuffle="block"))
assert len(plain) == len(cached) == 4, (len(plain), len(cached))
assert sum(len(batch["bin"]) for batch in plain) == 64
array = np.memmap("FOLDER/07.bin", dtype=np.uint8, mode="r")
array._mmap.madvise(mmap.MADV_RANDOM)
fd = os.open("FOLDER/07.bin", os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
assert bytes(array) == os.pread(fd, 1 << 20, 0) == b"\\7" * 2048
"""


def test_the_lines_that_mend_small_files_jumps_and_a_cold_cache_run(tmp_path):
    pytest.importorskip("bedplate.data", reason="the package has no extension module here", exc_type=ImportError)
    folder = tmp_path / "FOLDER"
    folder.mkdir()
    for i in range(64):
        (folder / f"{i:02d}.bin").write_bytes(bytes([i]) * 2048)
    for line in ("data pack FOLDER SHARDS/", "data index SHARDS/", "cache warm cache:200MB SHARDS/", "cache stat cache"):
        done = bedplate(*line.split(), cwd=tmp_path)
        assert done.returncode == 0, (line, done.stderr)
    done = subprocess.run([sys.executable, "-c", MENDED, tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert bedplate("cache", "drop", "cache", cwd=tmp_path).returncode == 0
