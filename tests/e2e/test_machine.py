"""`bedplate host` and `bedplate doctor`: this machine and recorded ones."""

import json
import pathlib
import xml.etree.ElementTree as ElementTree

import pytest
from support import bedplate

HOSTS = pathlib.Path(__file__).resolve().parent.parent / "hosts"
FIT = {"container": 1, "dgx-h100": 0, "epyc-nps4": 0, "roce": 1, "vm-2cpu": 0}


def test_host_draws_this_machine_in_100_columns(tmp_path):
    result = bedplate("host", cwd=tmp_path)
    assert result.returncode == 0
    lines = result.stdout.decode().splitlines()
    assert {len(line) for line in lines} == {100}
    assert lines[0].startswith("┌─ ") and lines[-1].startswith("└")


def test_host_as_json(tmp_path):
    result = bedplate("host", "--json", cwd=tmp_path)
    host = json.loads(result.stdout)
    assert host["schema"] == 1 and host["cpu"]["threads"] >= 1 and host["memory"]["total_bytes"] > 0


def test_host_writes_an_svg_that_parses(tmp_path):
    for name in FIT:
        result = bedplate("host", "--from", str(HOSTS / name), "--svg", "machine.svg", cwd=tmp_path)
        assert result.returncode == 0 and result.stdout == b""
        root = ElementTree.parse(tmp_path / "machine.svg").getroot()
        assert root.tag.endswith("svg") and root.attrib["viewBox"].startswith("0 0 920 ")


def test_host_in_ascii(tmp_path):
    text = bedplate("host", "--ascii", "--from", str(HOSTS / "dgx-h100"), cwd=tmp_path).stdout.decode("ascii")
    assert text.count("GPU") >= 8


@pytest.mark.parametrize("name", FIT)
def test_doctor_says_if_a_recorded_node_is_fit(tmp_path, name):
    folder = str(HOSTS / name)
    text = bedplate("doctor", "--from", folder, cwd=tmp_path)
    as_json = bedplate("doctor", "--json", "--from", folder, cwd=tmp_path)
    assert text.returncode == as_json.returncode == FIT[name]
    report = json.loads(as_json.stdout)
    assert (report["verdict"]["fit"] == "no") == (FIT[name] == 1)
    last = text.stdout.decode().rstrip("\n").splitlines()[-1]
    assert last.startswith(f"fit for training: {report['verdict']['fit']}  (")
    assert max(map(len, text.stdout.decode().splitlines())) <= 100


def test_doctor_takes_another_bound(tmp_path):
    folder = str(HOSTS / "vm-2cpu")
    bound = bedplate("doctor", "--json", "--threshold", "shm_size.fault_mib=99999", "--from", folder, cwd=tmp_path)
    assert bound.returncode == 1
    assert json.loads(bound.stdout)["verdict"]["rule"] == "shm_size"
    wrong = bedplate("doctor", "--threshold", "shm_size.fault_mb=1", cwd=tmp_path)
    assert wrong.returncode == 2 and b"did you mean shm_size.fault_mib?" in wrong.stderr


@pytest.mark.parametrize("command", ["host", "doctor"])
def test_a_machine_that_is_not_there(tmp_path, command):
    result = bedplate(command, "--from", "nowhere", cwd=tmp_path)
    assert result.returncode in (2, 3) and b"nowhere does not exist" in result.stderr and result.stdout == b""
