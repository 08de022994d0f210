"""bedplate.data under `bedplate run`: its waits are input, its threads are told by their own knobs, and what its caches and remote
stores count is in the report."""
import json
import subprocess
import sys
import time

import pytest
from support import BEDPLATE
from web_server import web_server

pytest.importorskip("torch")
pytest.importorskip("bedplate.data", reason="the package has no extension module here", exc_type=ImportError)

WRITE = """
import sys
import numpy as np
from bedplate.data import ShardWriter

folder, width, samples = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with ShardWriter(folder + "/000000.shard", {"x": ("float32", [width])}) as out:
    for i in range(samples):
        out.write(x=np.full(width, float(i), np.float32))
"""

TRAIN = """
import json, sys, time
import torch
from bedplate.data import Dataset, Loader

url, cache, how, epochs = sys.argv[1], sys.argv[2] or None, sys.argv[3], int(sys.argv[4])
slow = how == "slow"
torch.set_num_threads(1)

def decode(sample):
    time.sleep(0.002)
    return torch.from_numpy(sample["x"])

loader = Loader(Dataset(url, cache=cache, format="packed"), 8, threads=1, prefetch=1 << 16, shuffle="full",
                keep_window=how == "window", **({"decode": decode} if slow else {}))
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
for epoch in range(epochs):
    for batch in loader:
        x = (batch if slow else batch["x"])[:, :64]
        end = time.perf_counter() + 0.004
        while time.perf_counter() < end:
            model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def write_shards(folder, width=64, samples=2400):
    folder.mkdir()
    subprocess.run([sys.executable, "-c", WRITE, folder, str(width), str(samples)], check=True, timeout=60)


def report(tmp_path, url, how="fast", cache="", epochs=1, text=False):
    out = tmp_path / "report.json"
    out.unlink(missing_ok=True)
    run = tmp_path / f"run-{time.monotonic_ns()}"
    done = subprocess.run([BEDPLATE, "run", "--quiet", "--out", run, "--json", out, "--", sys.executable, "-c", TRAIN,
                           str(url), cache, how, str(epochs)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    if text:
        return subprocess.run([BEDPLATE, "report", run], capture_output=True, text=True, check=True, timeout=60).stdout
    return json.loads(out.read_text())


def findings(found):
    return {finding["rule"]: finding for finding in found["findings"]}


@pytest.fixture
def shards(tmp_path):
    write_shards(tmp_path / "shards")
    return f"{tmp_path}/shards/"


@pytest.fixture
def far(tmp_path):
    """Samples of 128 KiB behind a web server that takes 25 ms to answer; `far.asked` counts its answers."""
    write_shards(tmp_path / "far", 32768, 240)
    with web_server(tmp_path / "far", 0.025) as server:
        server.url = f"{server.url}/000000.shard"
        yield server


def test_a_loader_that_is_too_slow_is_named_with_its_threads(tmp_path, shards):
    found = findings(report(tmp_path, shards, "slow"))
    assert "input_workers" in found, found
    finding = found["input_workers"]
    assert "Loader(threads=" in finding["fix"]
    evidence = " ".join(item["text"] for item in finding["evidence"])
    assert "bedplate.data.Loader, threads=1" in evidence
    assert "waited" in evidence


def test_a_loader_that_keeps_up_is_no_finding(tmp_path, shards):
    found = report(tmp_path, shards)
    assert not {"input_workers", "cold_cache"} & set(findings(found))
    (data,) = found["data"]
    assert data["url"] == shards and data["set_samples"] == 2400
    assert (data["samples"], data["batches"], data["bytes"]) == (2400, 300, 2400 * 256)
    assert data["threads"]["idle_s"] > data["threads"]["store_wait_s"]
    assert data["cache"] is None and data["remote"] is None


def test_remote_data_without_a_cache_are_told_to_get_one(tmp_path, far):
    found = report(tmp_path, far.url + "?token=secret", epochs=2)
    assert "secret" not in json.dumps(found["data"]) and "secret" not in json.dumps(found["findings"])
    finding = findings(found)["cold_cache"]
    assert finding["status"] == "established"
    assert f'Dataset("{far.url}", cache="/nvme/cache:200GB")' in finding["fix"]
    (data,) = found["data"]
    assert data["remote"]["reads"] >= 480 / 8 and data["remote"]["retries"] == 0
    assert 25 <= data["remote"]["mean_ms"] <= data["remote"]["p99_ms"] * 1.3
    assert data["threads"]["store_wait_s"] > 0.5 * data["threads"]["make_s"]
    assert findings(found)["input_workers"]["because_of"]


def test_a_window_in_memory_is_told_like_a_cache(tmp_path, far):
    found = report(tmp_path, far.url, "window", epochs=2)
    (data,) = found["data"]
    window = data["cache"]
    assert window["cache"] is None and window["window_bytes"] > data["set_bytes"] >= 240 * 131072
    assert 240 * 131072 <= window["origin_bytes"] < 1.1 * data["set_bytes"], data
    assert window["hit_bytes"] >= 240 * 131072 and window["evictions"] == 0, data


def test_a_cold_cache_is_named_and_a_warm_one_is_none(tmp_path, far):
    cache = f"{tmp_path}/cache:100MB"
    cold = report(tmp_path, far.url, cache=cache)
    (data,) = cold["data"]
    assert data["cache"]["cache"] == cache
    assert data["cache"]["misses"] == 31 and data["cache"]["evictions"] == 0, data
    assert data["cache"]["origin_bytes"] + data["cache"]["hit_bytes"] >= 240 * 131072
    asked = far.asked
    warm = report(tmp_path, far.url, cache=cache, epochs=2)
    assert far.asked - asked < 10
    assert "cold_cache" not in findings(warm)
    (data,) = warm["data"]
    assert data["cache"]["misses"] == 0 and data["cache"]["hit_bytes"] >= 480 * 131072


def test_a_cache_that_is_too_small_is_named_as_that(tmp_path, far):
    found = report(tmp_path, far.url, cache=f"{tmp_path}/cache:8MB", epochs=3)
    finding = findings(found)["cold_cache"]
    assert "is too small for the data" in finding["title"], finding
    assert found["data"][0]["cache"]["evictions"] > 20


def test_why_a_cache_is_passed_by_is_said(tmp_path, far):
    (tmp_path / "cache").write_text("a file, no folder")
    found = report(tmp_path, far.url, cache=f"{tmp_path}/cache:100MB", epochs=3)
    (data,) = found["data"]
    assert data["cache"]["pass_throughs"] >= 720 and "cache" in data["cache"]["trouble"], data
    assert "cannot be used" in findings(found)["cold_cache"]["title"]


def test_the_text_says_what_was_read_and_who_waited(tmp_path, shards):
    text = report(tmp_path, shards, text=True)
    assert "DATA" in text and "2.40 k samples" in text and "waiting for the loop" in text, text
