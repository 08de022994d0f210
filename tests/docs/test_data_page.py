"""Every example of docs/data.md runs, from top to bottom, in one folder."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEDPLATE = pathlib.Path(os.environ.get("BEDPLATE", ROOT / "build/dev/src/cli/bedplate")).resolve()


def test_the_pages_examples_run(tmp_path):
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/data.md").read_text(), re.M | re.S)
    assert len(blocks) >= 6
    environment = dict(os.environ, PATH=f"{BEDPLATE.parent}:{os.environ['PATH']}")
    said = ""
    for block in blocks:
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        said += done.stdout
    assert "nothing to do" in said  # where the page says so
    assert (tmp_path / "picture.jpg").read_bytes() == (tmp_path / "pictures/cats/3.jpg").read_bytes() or (tmp_path / "picture.jpg").stat().st_size in (5000, 7000)
    assert (tmp_path / "tars/000000.tar.bpidx").exists()


PREPARED = """
import io, tarfile
import numpy, torch
from bedplate.data import ShardWriter
from zlib import compress, crc32
import struct, pathlib

def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", crc32(kind + content))

def png(value):
    head = struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0)
    return b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", head) + chunk(b"IDAT", compress((b"\\0" + bytes([value]) * 6) * 2)) + chunk(b"IEND", b"")

pathlib.Path("train").mkdir(exist_ok=True)
with tarfile.open("train/000000.tar", "w") as out:
    for i in range(600):
        for name, content in (("jpg", png(i % 256)), ("cls", b"%d" % (i % 10))):
            info = tarfile.TarInfo("%06d.%s" % (i, name))
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
with ShardWriter("tokens/000000.shard", {"tokens": ("uint16", [32])}) as out:
    for i in range(200):
        out.write(tokens=numpy.full(32, i, "uint16"))
device = "cpu"
model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 10))
criterion = torch.nn.CrossEntropyLoss()
"""


@pytest.mark.parametrize("page", ["loading", "decode"])
def test_the_pages_of_python_run(tmp_path, page):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / (page + ".md")).read_text(), re.M | re.S)
    assert blocks
    script = tmp_path / "page.py"
    # What is only made is also asked for a batch; a decode() needs no collate of ours to be right.
    script.write_text(PREPARED + "\n".join(blocks) + "\nprint(type(next(iter(loader))).__name__)\n")
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() in (["dict"], ["Tensor"])


def test_an_image_folder_becomes_batches_as_the_page_says(tmp_path):
    block = re.search(r"^## From an ImageFolder.*?^```python\n(.*?)^```", (ROOT / "docs/data.md").read_text(), re.M | re.S).group(1)
    script = tmp_path / "page.py"
    pictures = """
for name, value in (("ant/1.jpg", 1), ("ant/2.png", 2), ("bee/1.png", 3)):
    pathlib.Path("imagefolder", name).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path("imagefolder", name).write_bytes(png(value))
import subprocess, sys
subprocess.run([sys.argv[1], "data", "pack", "imagefolder", "classes"], check=True, stdout=subprocess.DEVNULL)
"""
    script.write_text(PREPARED + pictures + block + "\n    assert all((x[i] == 3).all() == (y[i] == 1) for i in range(256))\n    print(*x.shape, x.dtype, y.dtype, sorted(set(y.tolist())))\n    break\n")
    done = subprocess.run([sys.executable, str(script), str(BEDPLATE)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "256 3 224 224 torch.uint8 torch.int64 [0, 1]\n"
