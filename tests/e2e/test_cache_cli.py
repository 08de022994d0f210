"""bedplate cache: a folder is filled, shown, checked and emptied, as its user sees it."""

import json
import os
import signal
import subprocess

import pytest
from support import BEDPLATE, bedplate, eventually


@pytest.fixture
def origin(tmp_path):
    folder = tmp_path / "corpus"
    (folder / "train").mkdir(parents=True)
    for i in range(3):
        (folder / "train" / f"{i}.tar").write_bytes(os.urandom(2_500_000))
    (folder / "prüfung.bin").write_bytes(b"x" * 1000)
    return folder


def answer(tmp_path, *arguments, code=0):
    done = bedplate("cache", *arguments, "--json", cwd=tmp_path)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_warm_stat_drop(tmp_path, origin):
    warm = answer(tmp_path, "warm", "cache:64MiB", f"{origin}/train/")
    assert warm == {"objects": 3, "bytes": 7_500_000, "fetched_bytes": 7_500_000, "stopped": False, "failed": []}
    assert answer(tmp_path, "warm", "cache", f"{origin}/train/")["fetched_bytes"] == 0

    stat = answer(tmp_path, "stat", "cache")
    assert stat["cap_bytes"] == 64 << 20
    assert stat["blocks"] == 9 and stat["bytes"] == 7_500_000
    assert stat["disk_bytes"] == sum(f.stat().st_blocks * 512 for f in (tmp_path / "cache").iterdir())
    assert [o["blocks"] for o in stat["origins"]] == [9]
    assert stat["since_made"]["misses"] == 9 and stat["since_made"]["hits"] == 9
    text = bedplate("cache", "stat", "cache", cwd=tmp_path).stdout.decode()
    assert "9 blocks" in text and str(origin / "train") in text

    assert answer(tmp_path, "drop", "cache", f"{origin}/train/1.tar") == {"blocks": 3, "bytes": 2_500_000}
    assert answer(tmp_path, "drop", "cache") == {"blocks": 6, "bytes": 5_000_000}
    assert answer(tmp_path, "stat", "cache")["blocks"] == 0


def test_verify_finds_a_flipped_bit_and_repairs_when_asked(tmp_path, origin):
    answer(tmp_path, "warm", "cache:64MB", f"{origin}/")
    assert answer(tmp_path, "verify", "cache")["bad"] == []
    file = next((tmp_path / "cache").iterdir())
    wanted = (origin / "train" / "0.tar").read_bytes()[:4096]
    with open(file, "r+b") as raw:
        at = raw.read().index(wanted)
        raw.seek(at + 100)
        byte = raw.read(1)[0]
        raw.seek(at + 100)
        raw.write(bytes([byte ^ 4]))
    for arguments in ([], ["--repair"]):
        bad = answer(tmp_path, "verify", "cache", *arguments, code=1)["bad"]
        assert len(bad) == 1 and "checksum" in bad[0]["what"]
        assert bad[0]["origin"].rstrip("/") == str(origin)
    assert answer(tmp_path, "verify", "cache")["bad"] == []
    assert answer(tmp_path, "warm", "cache", f"{origin}/")["fetched_bytes"] == 1 << 20


def test_a_killed_warm_is_gone_on_with(tmp_path, origin):
    (origin / "big").write_bytes(os.urandom(64 << 20))
    arguments = ["cache", "warm", "cache:200MB", f"{origin}/", "--threads", "1"]
    first = subprocess.Popen([BEDPLATE, *arguments], cwd=tmp_path, stdout=subprocess.DEVNULL)
    eventually(lambda: (tmp_path / "cache").exists() and any((tmp_path / "cache").iterdir()), "the cache's file")
    first.send_signal(signal.SIGKILL)
    first.wait(20)
    assert bedplate(*arguments, cwd=tmp_path).returncode == 0
    assert answer(tmp_path, "verify", "cache")["bad"] == []
    assert answer(tmp_path, "stat", "cache")["bytes"] == (64 << 20) + 7_501_000


@pytest.mark.parametrize(
    "arguments, code, text",
    [
        (["stat", "nowhere"], 3, "there is no cache in nowhere"),
        (["stat"], 2, "DIR"),
        (["warm", "cache:9Q", "corpus/"], 2, "no size"),
        (["warm", "cache:2MB", "corpus/"], 2, "no room"),
        (["warm", "cache", "corpus/none"], 3, "names no object"),
        (["warm", "no/such/cache", "corpus/"], 3, "does not exist"),
        (["warm", "memory:1GB", "corpus/"], 2, "names no folder"),
        (["verfy", "cache"], 2, "verify"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(tmp_path, origin, arguments, code, text):
    done = bedplate("cache", *arguments, cwd=tmp_path)
    assert text in done.stderr.decode()
    assert done.returncode == code
    assert done.stdout == b""


def test_names_with_braces_and_patterns_are_warmed_and_dropped(tmp_path, origin):
    assert answer(tmp_path, "warm", "cache:64MiB", f"{origin}/train/{{0..1}}.tar")["objects"] == 2
    assert answer(tmp_path, "warm", "cache", f"{origin}/train/*.tar")["objects"] == 3
    assert answer(tmp_path, "drop", "cache", f"{origin}/train/{{1,2}}.tar") == {"blocks": 6, "bytes": 5_000_000}
    assert answer(tmp_path, "stat", "cache")["blocks"] == 3


def test_dropping_asks_the_origin_for_a_prefix_only(tmp_path, origin):
    answer(tmp_path, "warm", "cache:64MiB", f"{origin}/train/")
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    for url in ("s3://corpus/old/1.tar", "s3://corpus", "http://127.0.0.1:1/", "http://127.0.0.1:1/dir/1.tar"):
        done = bedplate("cache", "drop", "cache", url, cwd=tmp_path, env=bare)
        assert (done.returncode, done.stdout) == (0, b"0 blocks dropped, 0 B\n"), (url, done.stderr)
    done = bedplate("cache", "drop", "cache", "s3://corpus/old/", cwd=tmp_path, env=bare)
    assert done.returncode == 3
    said = done.stderr.decode()
    assert "AWS_ACCESS_KEY_ID" in said and "part-{000..127}.tar" in said and "all of s3://corpus" in said
    assert answer(tmp_path, "stat", "cache")["blocks"] == 9
