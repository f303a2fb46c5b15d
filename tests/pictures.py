#!/usr/bin/env python3
"""Draws every list of the command line as a picture, at 80 and at 200 columns, to look at.

    tests/pictures.py FOLDER

The lists are those of `src/cli/lists/tests.rs`, in colour. FOLDER gets an SVG for each, and one page,
`index.html`, with all of them; where `rsvg-convert` is installed, a PNG for each as well.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unicodedata
from html import escape

CELL, LINE, MARGIN = 8.4, 18, 12
BACK, FORE = "#101418", "#d8dee4"
COLOURS = {30: "#3b4048", 31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff",
           36: "#76e3ea", 37: FORE, 90: "#8b949e"}
SEQUENCE = re.compile(r"\x1b\[([0-9;]*)m")


def styled(line):
    """The characters of a line, each with its colour and whether it is bold or faint."""
    colour, bold, faint, at = FORE, False, False, 0
    for found in [*SEQUENCE.finditer(line), None]:
        for char in line[at:found.start() if found else None]:
            yield char, colour, bold, faint
        if found is None:
            return
        at = found.end()
        for code in [int(code or 0) for code in found[1].split(";")]:
            if code == 0:
                colour, bold, faint = FORE, False, False
            elif code == 1:
                bold = True
            elif code == 2:
                faint = True
            elif code == 39:
                colour = FORE
            else:
                colour = COLOURS[code]


def drawn(text, columns):
    """A terminal's text as SVG: every character at its column, so that fonts do not matter."""
    lines = text.rstrip("\n").split("\n")
    wide, high = columns * CELL + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{high}" '
           f'font-family="DejaVu Sans Mono, monospace" font-size="14" xml:space="preserve">',
           f'<rect width="100%" height="100%" fill="{BACK}"/>']
    for row, line in enumerate(lines):
        column = 0
        for char, colour, bold, faint in styled(line):
            if char != " ":
                style = (' font-weight="bold"' if bold else "") + (' opacity="0.65"' if faint else "")
                x, y = MARGIN + column * CELL, MARGIN + row * LINE + 14
                out.append(f'<text x="{x:.1f}" y="{y}" fill="{colour}"{style}>{escape(char)}</text>')
            column += 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if column > columns:
            sys.exit(f"a line has {column} columns of {columns}: {line!r}")
    return "\n".join([*out, "</svg>", ""])


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tree = pathlib.Path(__file__).resolve().parent.parent
    subprocess.run(["cargo", "test", "--locked", "--workspace", "--lib", "-q", "--", "cli::lists"], cwd=tree, check=True,
                   env={**os.environ, "DROVER_PICTURES": str(folder)}, stdout=subprocess.DEVNULL)
    page = [f'<body style="background:{BACK};color:{FORE};font-family:sans-serif">']
    for source in sorted(folder.glob("*.ansi")):
        columns = int(source.stem.rpartition("-")[2])
        picture = source.with_suffix(".svg")
        picture.write_text(drawn(source.read_text(), columns))
        source.unlink()
        if shutil.which("rsvg-convert"):
            subprocess.run(["rsvg-convert", "-o", picture.with_suffix(".png"), picture], check=True)
        page.append(f'<h3>{picture.stem}</h3><img src="{picture.name}">')
    (folder / "index.html").write_text("\n".join(page))
    print(f"{len(page) - 1} pictures: {folder}/index.html")


main()
