#!/usr/bin/env python3
"""Checks that rooms include only rooms below them, and that no source pulls in too many project headers.

Reads tools/layers.toml and every #include "room/x.h" under src/. Prints one line an offence and exits 1, or prints
the count of files it checked and exits 0.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def read_layers(path):
    """The two tables of layers.toml (tomllib came with Python 3.11; the file needs only this much of TOML)."""
    may_use, limits, table = {}, {}, None
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("["):
            table = {"may_use": may_use, "limits": limits}[line.strip("[]")]
        elif "=" in line:
            key, value = (part.strip() for part in line.split("=", 1))
            table[key] = re.findall(r'"([^"]+)"', value) if value.startswith("[") else int(value)
    return may_use, limits


def main():
    may_use, limits = read_layers(ROOT / "tools/layers.toml")
    src = ROOT / "src"
    files = sorted(p for p in src.rglob("*") if p.suffix in {".h", ".cc", ".c"})
    includes = {str(p.relative_to(src)): INCLUDE.findall(p.read_text()) for p in files}
    bad = []
    for name, wanted in includes.items():
        room = name.split("/")[0]
        if room not in may_use:
            bad.append(f"src/{name}: room '{room}' is not in tools/layers.toml")
            continue
        for header in wanted:
            other = header.split("/")[0]
            if other in may_use and other != room and other not in may_use[room]:
                bad.append(f'src/{name}: includes "{header}", but {room} may use only: {", ".join(may_use[room]) or "nothing"}')
            if "/internal/" in header and other != room:
                bad.append(f'src/{name}: includes "{header}", which is private to {other}')

    def reach(name, seen):
        for header in includes.get(name, []):
            if header in includes and header not in seen:
                seen.add(header)
                reach(header, seen)
        return seen

    for name in includes:
        if name.endswith(".cc") and len(seen := reach(name, set())) > limits["headers_per_source"]:
            bad.append(f"src/{name}: {len(seen)} project headers reach it, at most {limits['headers_per_source']} may")
    print("\n".join(bad) if bad else f"layers: {len(files)} files, no offence")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
