#!/usr/bin/env python3
"""Record libmtmd's results for tiny vision encoders (dev/tiny_vision) in tests/data/vision.

Needs llama-cpp-python: pip install '.[parity]'.

    python -m dev.record.record_vision  # all
    python -m dev.record.record_vision NAME ...  # these projectors
    python -m dev.record.record_vision --compare  # print llama-py's differences; record no file
    python -m dev.record.record_vision --types  # the same, with weights in F16, BF16, Q8_0
    python -m dev.record.record_vision --large N  # the same, two layers of real width, patches of N
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from dev import tiny_models as texts
from dev import tiny_vision as tiny
from dev.record.golden import vision
from dev.record.golden.vision_ours import compare


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument(
        "--compare", action="store_true", help="print llama-py's differences; record no file"
    )
    p.add_argument("--types", action="store_true", help="print differences with other weight types")
    p.add_argument(
        "--large",
        type=int,
        choices=(14, 16),
        help="print differences of larger encoders with this patch size",
    )
    args = p.parse_args()
    known = tiny.every()
    if unknown := set(args.names) - set(known):
        p.error(f"no tiny encoder {', '.join(sorted(unknown))}; known encoders: {', '.join(known)}")
    for name in args.names or known:
        with tempfile.TemporaryDirectory() as folder:
            if args.types or args.large:
                from dev.record.golden.vision_more import by_type, large

                one = Path(folder)
                for line in [large(name, one, args.large)] if args.large else by_type(name, one):
                    print(line)
                continue
            mmproj = tiny.write(name, Path(folder))
            text = texts.write(*tiny.text_of(known[name]), Path(folder))
            if args.compare:
                for line in compare(name, text, mmproj):
                    print(line)
            else:
                print(f"{name}: recorded {vision.record(name, text, mmproj, known[name])} bytes")


if __name__ == "__main__":
    main()
