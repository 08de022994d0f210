"""report, compare and config on the recorded runs of tests/golden: what is printed where, and exit codes."""

import json
import os
import re
import shutil

import pytest
from support import BEDPLATE, ROOT, bedplate

GOLDEN = ROOT / "tests/golden"
FOUND = "input_workers"
ESCAPE = re.compile(rb"\x1b\[[0-9;]*m")


@pytest.fixture
def runs(tmp_path):
    """Copies of two recorded runs, `healthy` and `slow`."""
    for name, source in (("healthy", "healthy"), ("slow", FOUND)):
        (tmp_path / name).mkdir()
        shutil.copy(GOLDEN / source / "run.db", tmp_path / name)
    return tmp_path


def without_config(**more):
    kept = {key: value for key, value in os.environ.items() if key not in ("BEDPLATE_CONFIG", "XDG_CONFIG_HOME", "HOME")}
    return {**kept, "HOME": "/nonexistent", **more}


def test_text_is_plain_on_a_pipe_and_goes_to_stdout(runs):
    result = bedplate("report", "slow", cwd=runs, env=without_config())
    assert result.returncode == 0 and result.stderr == b""
    text = result.stdout.decode()
    assert "\x1b" not in text
    assert FOUND in text
    assert max(map(len, text.splitlines())) <= 100


def test_colour_on_a_terminal_but_not_with_no_color(runs, terminal):
    for more, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        screen = terminal(BEDPLATE, "report", "slow", cwd=runs, env={"NO_COLOR": "", "HOME": "/nonexistent", **more})
        assert screen.finish() == 0
        assert (ESCAPE.search(screen.seen) is not None) == coloured, more


def test_json_to_stdout_or_a_file_in_any_order(runs):
    printed = bedplate("report", "slow", "--json", cwd=runs, env=without_config())
    report = json.loads(printed.stdout)
    assert report["schema"] == 1 and report["verdict"]["rule"] == FOUND
    assert bedplate("report", "--json", "slow", cwd=runs, env=without_config()).stdout == printed.stdout
    to_file = bedplate("report", "slow", "--json", "report.json", cwd=runs, env=without_config())
    assert to_file.returncode == 0 and to_file.stdout == b""
    assert (runs / "report.json").read_bytes() == printed.stdout


def test_page_and_trace(runs):
    result = bedplate("report", "slow", "--html", "page.html", "--trace", "trace.json", cwd=runs, env=without_config())
    assert result.returncode == 0 and result.stdout == b"" and result.stderr == b""
    page = (runs / "page.html").read_text()
    assert page.startswith("<!doctype html>") and FOUND in page and "<script" not in page
    trace = json.loads((runs / "trace.json").read_text())
    assert any(event["ph"] == "X" and event["cat"] == "step" for event in trace["traceEvents"])


def test_exit_code_says_whether_a_cause_was_found(runs):
    assert bedplate("report", "slow", "--exit-code", cwd=runs, env=without_config()).returncode == 1
    assert bedplate("report", "healthy", "--exit-code", cwd=runs, env=without_config()).returncode == 0


@pytest.mark.parametrize("arguments, code, says", [
    (["report"], 2, b"which run?"),
    (["report", "nowhere"], 3, b"nowhere"),
    (["report", "slow", "--html", "no/such/folder/page.html"], 3, b"page.html"),
    (["report", "slow", "--jsn"], 2, b"--json"),
    (["report", "slow", "--html", "slow/run.db"], 2, b"slow/run.db is the recording of a run"),
    (["report", "slow", "--json", "x", "--html", "./x"], 2, b"two reports cannot be written to one file"),
    (["run", "--json", "slow/run.db", "--", "true"], 2, b"slow/run.db is the recording of a run"),
    (["compare", "slow"], 2, b"two runs"),
    (["compare", "slow", "nowhere"], 3, b"nowhere"),
    (["compare", "slow", "slow", "--fail-if", "step_mss > 5%"], 2, b"did you mean step_ms?"),
    (["config", "explain", "cpu_quota.nothing"], 2, b"cpu_quota"),
    (["config", "explain"], 2, b"which key?"),
    (["config", "tell"], 2, b"tell"),
])
def test_what_is_wrong_is_said(runs, arguments, code, says):
    result = bedplate(*arguments, cwd=runs, env=without_config())
    assert result.returncode == code, result.stderr
    assert says in result.stderr and result.stdout == b""


def test_a_configured_threshold_changes_the_report(runs):
    report = json.loads(bedplate("report", "slow", "--json", cwd=runs, env=without_config()).stdout)
    assert FOUND in [finding["rule"] for finding in report["findings"]]
    listed = bedplate("config", "show", cwd=runs, env=without_config()).stdout.decode()
    key = re.search(rf"^({FOUND}\.\S*share) = ", listed, re.M)[1]
    (runs / "strict.toml").write_text(f"[thresholds]\n{key} = 1\n")
    quiet = bedplate("report", "slow", "--json", "--config", "strict.toml", cwd=runs, env=without_config())
    assert FOUND not in [finding["rule"] for finding in json.loads(quiet.stdout)["findings"]]
    by_environment = bedplate("report", "slow", "--json", cwd=runs, env=without_config(BEDPLATE_CONFIG="strict.toml"))
    assert by_environment.stdout == quiet.stdout
    explained = bedplate("config", "explain", key, "--config", "strict.toml", cwd=runs, env=without_config())
    assert b"set in strict.toml" in explained.stdout


def test_an_unknown_key_stops_every_command_that_judges(runs):
    (runs / "typo.toml").write_text("[thresholds]\ncpu_quota.throtled_share = 0.5\n")
    for arguments in (["report", "slow"], ["compare", "slow", "healthy"], ["config", "show"]):
        result = bedplate(*arguments, "--config", "typo.toml", cwd=runs, env=without_config())
        assert result.returncode == 2 and b"typo.toml:2" in result.stderr, result.stderr


def test_compare_names_the_change_and_the_gate_decides(runs):
    result = bedplate("compare", "slow", "healthy", "--json", "--fail-if", "step_ms > 5%", cwd=runs, env=without_config())
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["verdict"]["status"] == "faster"
    assert {one["rule"]: one["state"] for one in found["findings"]}[FOUND] == "gone"
    back = bedplate("compare", "healthy", "slow", "--fail-if", "step_ms > 5%", cwd=runs, env=without_config())
    assert back.returncode == 1
    assert "holds" in back.stdout.decode()


def test_compare_takes_lists_and_folders_of_runs(runs):
    listed = json.loads(bedplate("compare", "healthy,slow", "slow", "--json", cwd=runs, env=without_config()).stdout)
    assert len(listed["a"]) == 2 and len(listed["b"]) == 1
    folder = json.loads(bedplate("compare", ".", "slow", "--json", cwd=runs, env=without_config()).stdout)
    assert len(folder["a"]) == 2


def test_compare_lists_its_metrics(runs):
    text = bedplate("compare", "--metrics", cwd=runs, env=without_config()).stdout.decode()
    assert re.search(r"^step_ms +step time, median$", text, re.M)
