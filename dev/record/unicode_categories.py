#!/usr/bin/env python3
"""Write llama_py/data/unicode.txt: llama.cpp's character categories (Unicode 15.1).

The file makes the categories independent of the Unicode version of Python and its libraries.

    python -m dev.record.unicode_categories llama.cpp/src/unicode-data.cpp
"""

from __future__ import annotations

import argparse
import re
import textwrap
from itertools import pairwise
from pathlib import Path

DATA = Path(__file__).parents[2] / "llama_py" / "data" / "unicode.txt"
LETTERS = {2: "N", 4: "L", 8: "Z", 16: "M", 32: "P", 64: "S", 128: "C"}  # unicode_cpt_flags
HEAD = """\
# First and last characters by category (Unicode 15.1); what is not here is not assigned.
# Made by dev/record/unicode_categories.py of llama.cpp's src/unicode-data.cpp.
"""


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("source", type=Path, metavar="FILE", help="src/unicode-data.cpp of llama.cpp")
    DATA.write_text(table(p.parse_args().source.read_text("utf-8")), "utf-8")


def table(source: str) -> str:
    """Return the lines of the file: a category letter, then hexadecimal character ranges."""
    start = source.index("unicode_ranges_flags")
    rows = re.findall(r"\{0x(\w+), 0x(\w+)\}", source[start : source.index("};", start)])
    starts = [(int(first, 16), int(flags, 16)) for first, flags in rows]
    lines = []
    for flag, letter in LETTERS.items():
        ranges = (
            f"{first:X}-{after - 1:X}" if after - first > 1 else f"{first:X}"
            for (first, flags), (after, _) in pairwise(starts)
            if flags & flag
        )
        indent = {"initial_indent": f"{letter} ", "subsequent_indent": f"{letter} "}
        lines += textwrap.wrap(" ".join(ranges), 100, break_on_hyphens=False, **indent)
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
