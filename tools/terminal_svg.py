#!/usr/bin/env python3
"""A command's terminal output as an SVG picture, for the README.

    tools/terminal_svg.py docs/images/report.svg -- build/dev/src/cli/bedplate report RUN
    tools/terminal_svg.py docs/images/report.svg --lines 60 -- bedplate report RUN

The command runs on a pseudo-terminal of 100 columns, so it prints what a person would see. Letters are placed on a grid, so
the picture does not depend on the reader's font. Understands the colours that Bedplate prints and nothing else.
"""
import argparse
import os
import pty
import re
import sys
import termios
import unicodedata
from struct import pack
from fcntl import ioctl
from html import escape

COLUMNS = 100
CELL, LINE, SIZE = 7.8, 18, 13
INK = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "34": "u", "35": "m", "36": "c"}
STYLE = """
text{font:%dpx ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;fill:#d7dde5;white-space:pre}
.b{font-weight:700;fill:#fff}.d{fill:#8592a1}.r{fill:#ff7b72}.g{fill:#4cc38a}.y{fill:#f0b24a}.u{fill:#6ea8fe}.m{fill:#d78cf0}.c{fill:#56c8d8}
""" % SIZE


def on_terminal(command):
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS))
        os.environ.pop("NO_COLOR", None)
        ioctl(1, termios.TIOCSWINSZ, pack("HHHH", 50, COLUMNS, 0, 0))
        os.execvp(command[0], command)
    output = b""
    try:
        while piece := os.read(terminal, 65536):
            output += piece
    except OSError:  # the terminal's end, on Linux
        pass
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        sys.exit(f"terminal_svg: {command[0]} ended with {status}")
    return output.decode().replace("\r\n", "\n")


def width(character):
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def spans(line):
    """(column, text, ink) of the pieces of one line."""
    ink, column = "", 0
    for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
        if code := re.fullmatch(r"\x1b\[([0-9;]*)m", piece):
            ink = INK.get(code[1], "")
        elif piece:
            if piece.strip():
                yield column, piece, ink
            column += sum(map(width, piece))


def svg(text):
    lines = text.rstrip("\n").split("\n")
    wide, high = int(COLUMNS * CELL + 40), len(lines) * LINE + 36
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">',
           f"<style>{STYLE}</style>", f'<rect width="{wide}" height="{high}" rx="10" fill="#161b22"/>']
    for row, line in enumerate(lines):
        y = 28 + row * LINE
        for column, piece, ink in spans(line):
            lead = len(piece) - len(piece.lstrip(" "))
            piece = piece[lead:].rstrip(" ")
            length = sum(map(width, piece)) * CELL
            style = f' class="{ink}"' if ink else ""
            out.append(f'<text{style} x="{20 + (column + lead) * CELL:.1f}" y="{y}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs">{escape(piece)}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", help="the SVG file to write")
    parser.add_argument("--lines", type=int, help="keep only so many lines")
    parser.add_argument("command", nargs="+", help="after --")
    options = parser.parse_args()
    text = on_terminal(options.command)
    if options.lines:
        text = "\n".join(text.split("\n")[: options.lines])
    with open(options.picture, "w", encoding="utf-8") as file:
        file.write(svg(text))


if __name__ == "__main__":
    main()
