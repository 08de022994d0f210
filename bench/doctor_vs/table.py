"""results.json as Markdown: what each names, the count, and what each costs."""

import statistics

import judge
import peers

BEGIN = "<!-- bench/doctor_vs/run.py --docs: begin -->\n"
END = "<!-- bench/doctor_vs/run.py --docs: end -->\n"

_WORDS = {"cause": "**names it**", "suggested": "suggests it", "symptom": "symptom", "silent": "silent", "wrong": "**wrong**"}


def cell(fault, run):
    if run is None:
        return "not run"
    if run["step"] is None:
        return "the job did not finish"
    verdict = judge.judge(fault, run["claims"])
    text = _WORDS[verdict["grade"]]
    if verdict["grade"] == "cause" and not verdict["first"]:
        text += ", not first"
    if verdict["grade"] in ("suggested", "symptom", "wrong"):
        text += f": {verdict['what']}"
    if verdict["grade"] == "silent" and verdict["what"] not in ("", "healthy", "no issues found"):
        text += f" ({verdict['what']})"
    if verdict["wrong"]:
        text += f"; false besides: {', '.join(verdict['wrong'])}"
    if verdict["useless"]:
        text += "; its first advice does not help" if verdict["grade"] == "suggested" else "; its advice does not help"
    return text


def _unchanged(results):
    runs = {name: job["runs"]["traceml"] for name, job in results["jobs"].items() if "traceml" in job.get("runs", {})}
    said = "; ".join(f"`{name}`: {cell(name, run)}" for name, run in runs.items())
    return ["", f"TraceML on the unchanged script: {said}."] if runs else []


def _row(cells):
    return "| " + " | ".join(cells) + " |"


def _names(results):
    tools = peers.NAMING
    lines = [_row(["fault", "what was planted", *(tool.title for tool in tools)]), _row(["---"] * (len(tools) + 2))]
    for name, accepted in judge.FAULTS.items():
        job = results["jobs"].get(name, {})
        if "skipped" in job:
            lines.append(_row([f"`{name}`", accepted.planted, f"skipped: {job['skipped']}"] + [""] * (len(tools) - 1)))
            continue
        lines.append(_row([f"`{name}`", accepted.planted, *(cell(name, job.get("runs", {}).get(tool.name)) for tool in tools)]))
    for name, job in results["jobs"].items():
        if name not in judge.FAULTS:
            lines.append(_row([f"`{name}`", "nothing: a healthy job", *(cell(name, job["runs"].get(tool.name)) for tool in tools)]))
    return lines


def _count(results):
    lines = [_row(["of the faults", *(tool.title for tool in peers.NAMING)]), _row(["---"] + ["---:"] * len(peers.NAMING))]
    graded = {tool.name: [judge.judge(name, job["runs"][tool.name]["claims"]) for name, job in results["jobs"].items()
                          if name in judge.FAULTS and job.get("runs", {}).get(tool.name, {}).get("step")] for tool in peers.NAMING}
    rows = {"cause": "names the cause", "suggested": "suggests it among others", "symptom": "a symptom only",
            "silent": "silent", "wrong": "wrong"}
    for grade, text in rows.items():
        lines.append(_row([text, *(str(sum(v["grade"] == grade for v in graded[tool.name])) for tool in peers.NAMING)]))
    lines.append(_row(["not run, or the job did not finish", *(str(len(judge.FAULTS) - len(graded[tool.name])) for tool in peers.NAMING)]))
    lines.append(_row(["a false claim besides", *(str(sum(bool(v["wrong"]) for v in graded[tool.name])) for tool in peers.NAMING)]))
    return lines


def _changes(runs, name, key):
    """Of each round, against the bare run of the same round."""
    return [run[key] / bare[key] - 1 for run, bare in zip(runs[name], runs["bare"])]


def _costs(results):
    runs = results["overhead"]["runs"]
    lines = [_row(["under", "mean step, ms", "change of each round", "median step, ms", "change of each round"]), _row(["---"] + ["---:"] * 4)]
    for tool in peers.COSTING:
        cells = [tool.title]
        for key in ("mean_ms", "median_ms"):
            values, changes = [run[key] for run in runs[tool.name]], _changes(runs, tool.name, key)
            change = "" if tool is peers.BARE else f"{statistics.median(changes):+.1%} ({min(changes):+.1%} … {max(changes):+.1%})"
            cells += [f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})", change]
        lines.append(_row(cells))
    return lines


def lost_cells(results):
    """Where a peer is graded better than Bedplate, and where Bedplate does not name the fault first or says more than is true."""
    lines = []
    for name, job in results["jobs"].items():
        runs = job.get("runs", {})
        if "bedplate" not in runs:
            continue
        ours = judge.judge(name, runs["bedplate"]["claims"])
        for tool in peers.NAMING[1:]:
            theirs = judge.judge(name, runs[tool.name]["claims"]) if tool.name in runs else ours
            if judge.GRADES.index(theirs["grade"]) < judge.GRADES.index(ours["grade"]):
                lines.append(f"- `{name}`: {tool.title} {cell(name, runs[tool.name])}; Bedplate {cell(name, runs['bedplate'])}")
        if ours["wrong"] or (name in judge.FAULTS and (ours["grade"] != "cause" or not ours["first"])):
            lines.append(f"- `{name}`: Bedplate {cell(name, runs['bedplate'])}")
    return lines


def _lost_costs(results):
    runs = results["overhead"]["runs"]
    change = {tool.name: statistics.median(_changes(runs, tool.name, "mean_ms")) for tool in peers.COSTING}
    return [f"- step time: {tool.title} {change[tool.name]:+.1%}, Bedplate {change['bedplate']:+.1%}"
            for tool in peers.COSTING[2:] if change[tool.name] < change["bedplate"]]


def markdown(results):
    versions = results["versions"]
    lines = [f"{results['machine']}; Python {versions['python']}, torch {versions['torch']}, {versions['bedplate']}, "
             f"traceml-ai {versions['traceml-ai']}, datapath-doctor {versions['datapath-doctor']}. One run a cell.",
             "", *_names(results), *_unchanged(results), "", *_count(results)]
    lost = lost_cells(results)
    if "overhead" in results:
        count = len(results["overhead"]["runs"]["bare"])
        lines += ["", f"What watching costs: `job.py {results['overhead']['job']}`, n = {count} in turns, medians (lowest–highest).",
                  "", *_costs(results)]
        lost += _lost_costs(results)
    lines += ["", "Cells that Bedplate loses:", "", *(lost or ["- none in this run"])]
    return "\n".join(lines)


def pasted(page, results):
    """The text of a page with the tables between its two marks."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + markdown(results) + "\n" + END + rest.split(END)[1]
