#!/usr/bin/env python3
"""No two headers define a type of one name in one namespace: the linker would keep one of two layouts, in silence.

    tools/check_names.py        prints each offence; exit 1 when there is one
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFINITION = re.compile(r"^(?:struct|class|enum class|enum) (?:\[\[\w+\]\] )?(\w+)(?: final)?(?: : [^;]*)?\s*\{", re.MULTILINE)
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.MULTILINE)


def definitions(text):
    """(namespace, name) of each type that begins a line, with the namespace opened last before it."""
    marks = [(m.start(), m.group(1)) for m in NAMESPACE.finditer(text)]
    for match in DEFINITION.finditer(text):
        inside = [name for at, name in marks if at < match.start()]
        yield inside[-1] if inside else "", match.group(1)


def main():
    places = {}
    for header in sorted([*ROOT.glob("src/**/*.h"), *ROOT.glob("include/**/*.h")]):
        for definition in definitions(header.read_text()):
            places.setdefault(definition, []).append(header.relative_to(ROOT))
    twice = {key: found for key, found in places.items() if len(found) > 1}
    for (namespace, name), found in twice.items():
        print(f"{namespace}::{name} is defined in {' and '.join(map(str, found))}: give one another name")
    sys.exit(1 if twice else 0)


if __name__ == "__main__":
    main()
