"""Two faults at once: ranked in the order of what each costs, measured by removing each alone."""

import cgroups
import conftest
import faults
import harness
import pytest


@pytest.mark.parametrize("names", faults.PAIRS, ids=lambda names: f"{names[0]}+{names[1]}")
def test_the_dearer_fault_comes_first(names, rounds):
    first, second = faults.BY_NAME[names[0]], faults.BY_NAME[names[1]]
    common = {**first.base, **second.base, **names[2]}

    def job(chosen, path):
        parts = [fault.faulty if fault in chosen else fault.mended for fault in (first, second)]
        stronger = {flag: value for flag, value in names[3].items() if any(flag in fault.faulty for fault in chosen)}
        arguments = faults.flags(common, *parts, stronger, {"folder": path})
        with faults.planted(chosen, path) as (group, env):
            return harness.run(arguments, group, env)

    with faults.folder(first.needs + second.needs) as path:
        for _ in range(rounds):
            try:
                both = job([first, second], path)
                cost = {first.rule: 1 - job([second], path).mean_ms / both.mean_ms,
                        second.rule: 1 - job([first], path).mean_ms / both.mean_ms}
            except cgroups.Missing as missing:
                conftest.row("+".join(names[:2]), "skipped", note=str(missing))
                pytest.skip(f"{names[0]}+{names[1]}: {missing}")
            roots = [f["rule"] for f in both.findings if f["because_of"] is None]
            note = ", ".join(f"{rule} cost {100 * cost[rule]:.0f} %" for rule in cost)
            conftest.row("+".join(names[:2]), "ranked" if roots else "NOT FOUND", note=f"{note}; found {', '.join(roots)}")
            assert set(roots) == {first.rule, second.rule}, both.text
            for rule, measured in cost.items():
                assert both.finding(rule)["gain_ceiling"] >= measured - harness.NOISE, both.text
            if abs(cost[first.rule] - cost[second.rule]) > harness.NOISE:
                assert roots == sorted(cost, key=cost.get, reverse=True), f"{note}\n{both.text}"
