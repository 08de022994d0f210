"""The tables of docs/doctor.md are what bench/doctor_vs/results.json and the judge's table give."""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/doctor_vs"))
import judge  # noqa: E402
import table  # noqa: E402

sys.path.insert(0, str(ROOT / "tests/provoke"))
import faults  # noqa: E402


def test_the_tables_are_up_to_date():
    page = (ROOT / "docs/doctor.md").read_text()
    results = json.loads((ROOT / "bench/doctor_vs/results.json").read_text())
    assert table.pasted(page, results) == page, "run bench/doctor_vs/run.py --docs"


def test_every_fault_has_its_accepted_words():
    assert set(judge.FAULTS) == set(faults.BY_NAME)


def claim(name, text="", advice=""):
    return {"name": name, "text": text, "advice": advice}


def test_grades():
    assert judge.judge("io_throttle", [claim("INPUT-BOUND", advice="Increase workers.")]) == {
        "grade": "symptom", "what": "the loop waits for input", "first": True, "wrong": [], "useless": True}
    assert judge.judge("io_throttle", [claim("python_gc"), claim("io_throttle", "the cgroup may read only 40 MiB/s")]) == {
        "grade": "cause", "what": "io_throttle", "first": False, "wrong": ["python_gc"], "useless": False}
    assert judge.judge("checkpoint_stall", [claim("RESIDUAL-HEAVY", advice="Inspect checkpointing.")])["grade"] == "suggested"
    assert judge.judge("cpu_quota", [claim("COMPUTE-BOUND"), claim("SYSTEM: NORMAL")])["grade"] == "silent"
    assert judge.judge("well_fed", [claim("healthy")])["grade"] == "silent"
    assert judge.judge("well_fed", [claim("INPUT-BOUND")])["grade"] == "wrong"
    assert judge.judge("cpu_quota", [])["grade"] == "silent"
