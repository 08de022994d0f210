"""Every example of docs/data.md runs, from top to bottom, in one folder."""
import os
import pathlib
import re
import subprocess

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
