"""Each fault alone: named first, and its ceiling not below what mending it really brought."""

import cgroups
import conftest
import faults
import harness
import pytest


def gain_of(faulty, mended):
    return 1 - mended.mean_ms / faulty.mean_ms


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.name)
def test_fault_is_named_first_and_its_ceiling_holds(fault, rounds):
    with faults.folder(fault.needs) as path:
        for _ in range(rounds):
            try:
                faulty, mended = provoke(fault, path)
            except cgroups.Missing as missing:
                conftest.row(fault.name, "skipped", note=str(missing))
                pytest.skip(f"{fault.name}: {missing}")
            found = faulty.finding(fault.rule)
            gain = gain_of(faulty, mended)
            conftest.row(fault.name, found["status"] if found else "NOT FOUND", found["gain_ceiling"] if found else None, gain,
                         ", ".join(rule for rule in faulty.rules if rule != fault.rule))
            judge(fault, faulty, mended, gain)


def provoke(fault, path):
    with faults.planted([fault], path) as (group, env):
        faulty = harness.run(faults.flags(fault.base, fault.faulty, {"folder": path}), group, env, fault.neighbours > 0)
    mended = harness.run(faults.flags(fault.base, fault.mended, {"folder": path}))
    return faulty, mended


def judge(fault, faulty, mended, gain):
    found = faulty.finding(fault.rule)
    assert faulty.rules[:1] == [fault.rule], faulty.text
    assert faulty.report["verdict"]["rule"] == fault.rule
    assert set(faulty.rules) <= {fault.rule, *fault.allow}, faulty.text
    for other in faulty.findings[1:]:
        assert other["because_of"], f"{other['rule']} is no consequence\n{faulty.text}"
    if fault.says:
        assert fault.says in faulty.text, faulty.text
    assert gain > 0.05, f"the fault cost nothing ({gain:.2f}): it was not provoked"
    assert found["gain_ceiling"] >= gain - harness.NOISE, f"ceiling {found['gain_ceiling']:.2f}, gained {gain:.2f}\n{faulty.text}"
    assert mended.rules == [], mended.text
    assert mended.report["verdict"]["status"] == "healthy", mended.text
