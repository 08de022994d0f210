"""docs/acceptance.md: every acceptance case has tests, and every test that is named there exists."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows():
    page = (ROOT / "docs/acceptance.md").read_text()
    for number, tests in re.findall(r"^\| (\d+) \|.*\|([^|]*)\|$", page, re.M):
        yield int(number), re.findall(r"`([^`]+)`", tests)


def test_all_cases_are_there():
    assert [number for number, tests in rows() if tests] == list(range(1, 16))


def test_the_tests_exist():
    cpp = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*_test.cc")))
    there = {"%s.%s" % names for names in re.findall(r"^TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", cpp, re.M)}
    for path in sorted((ROOT / "python/tests").glob("test_*.py")):
        there |= set(re.findall(r"^def (test_\w+)\(", path.read_text(), re.M))
    missing = [name for _, tests in rows() for name in tests if name not in there]
    assert not missing
