"""bedplate.data under `bedplate run`: its waits are input, its threads are told by their own knobs."""
import json
import subprocess
import sys

import pytest
from support import BEDPLATE

pytest.importorskip("torch")
pytest.importorskip("bedplate.data", reason="the package has no extension module here", exc_type=ImportError)

SCRIPT = """
import sys, time
import torch
from bedplate.data import Dataset, Loader, ShardWriter

folder, slow = sys.argv[1], sys.argv[2] == "slow"
with ShardWriter(folder + "/000000.shard", {"x": ("float32", [64])}) as out:
    for i in range(2400):
        out.write(x=torch.full((64,), float(i)).numpy())
torch.set_num_threads(1)

def decode(sample):
    time.sleep(0.002)
    return torch.from_numpy(sample["x"])

loader = Loader(Dataset(folder + "/"), 8, threads=1, prefetch=1 << 16, **({"decode": decode} if slow else {}))
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
for batch in loader:
    x = batch if slow else batch["x"]
    end = time.perf_counter() + 0.004
    while time.perf_counter() < end:
        model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def report(tmp_path, how):
    (tmp_path / "shards").mkdir()
    out = tmp_path / "report.json"
    done = subprocess.run([BEDPLATE, "run", "--quiet", "--out", tmp_path / "run", "--json", out, "--", sys.executable, "-c", SCRIPT,
                           tmp_path / "shards", how], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(out.read_text())


def test_a_loader_that_is_too_slow_is_named_with_its_threads(tmp_path):
    found = {finding["rule"]: finding for finding in report(tmp_path, "slow")["findings"]}
    assert "input_workers" in found, found
    finding = found["input_workers"]
    assert "Loader(threads=" in finding["fix"]
    evidence = " ".join(item["text"] for item in finding["evidence"])
    assert "bedplate.data.Loader, threads=1" in evidence
    assert "waited" in evidence


def test_a_loader_that_keeps_up_is_no_finding(tmp_path):
    assert "input_workers" not in {finding["rule"] for finding in report(tmp_path, "fast")["findings"]}
