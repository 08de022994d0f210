"""Jobs of different shapes in which nothing is wrong: no finding, and said to be healthy."""

import conftest
import faults
import harness
import pytest


@pytest.mark.parametrize("shape", faults.HEALTHY)
def test_a_healthy_job_has_no_findings(shape, healthy_rounds):
    wrong = []
    for _ in range(healthy_rounds):
        outcome = harness.run(faults.flags(faults.HEALTHY[shape]))
        if outcome.rules or outcome.verdict["status"] != "healthy":
            wrong.append(outcome)
    conftest.row(shape, "healthy" if not wrong else f"{len(wrong)} WRONG", note=f"{healthy_rounds} runs")
    assert not wrong, wrong[0].text
