"""What the formats' own writers write is read sample for sample. See test_real_writers.py."""

import hashlib
import os
import pathlib
import subprocess
import sys
import sysconfig
import venv

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "bench/peers/formats.txt"


@pytest.fixture(scope="session")
def data_cat():
    """The program that prints a data set as JSON lines (src/data/data_cat.cc)."""
    given = os.environ.get("BEDPLATE_DATA_CAT")
    for path in [given] if given else [ROOT / f"build/{preset}/src/data/data_cat" for preset in ("ci", "dev")]:
        if os.access(path, os.X_OK):
            return str(path)
    pytest.exit("no data_cat: build it (cmake --build build/dev --target data_cat), or set BEDPLATE_DATA_CAT", 3)


@pytest.fixture(scope="session")
def peers():
    """A Python with the writers, in a virtual environment of its own; skips, naming them, when they cannot be had."""
    name = hashlib.sha256(PACKAGES.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = ROOT / "build/peers" / f"formats-{name}"
    python = folder / "bin/python"
    if (folder / "complete").exists():
        return str(python)
    venv.create(folder, clear=True, with_pip=True)
    # torch and numpy are those of this environment, not installed a second time.
    [packages] = folder.glob("lib/python3*/site-packages")
    (packages / "project.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "-r", PACKAGES]
    done = subprocess.run(install, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        pytest.skip(f"the packages of {PACKAGES.relative_to(ROOT)} cannot be installed: {done.stderr.strip()[-300:]}")
    (folder / "complete").touch()
    return str(python)
