#!/usr/bin/env python3
"""Hold answers of a model to JSON schemas, and let another package judge them.

python tools/check_schemas.py                    # schemas 0 to 499, the demo model
python tools/check_schemas.py --start 7 --count 1 --show  # one of them, and its answer
"""

from __future__ import annotations

import argparse
import json
import sys


def main(argv: list[str] | None = None) -> int:
    """0 if all answers are valid or cut, 1 if one is wrong."""
    import llama_py
    from schemas.run import answers, nth, summary

    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("-m", "--model", help="GGUF file (default: the demo model)")
    p.add_argument("--start", type=int, default=0)
    p.add_argument("--count", type=int, default=500)
    p.add_argument("-n", "--max-tokens", type=int, default=900)
    p.add_argument("--show", action="store_true", help="every schema and answer")
    args = p.parse_args(argv)
    told = []
    with llama_py.Model(args.model) as model:
        for one in answers(model, range(args.start, args.start + args.count), args.max_tokens):
            told.append(one)
            if args.show or one.what != "valid":
                print(f"{one.number} {one.way}: {one.what}\n  {json.dumps(nth(one.number))}")
                print(f"  {one.text[:300]!r}")
    print(summary(told))
    return int(any(one.what.startswith("wrong") for one in told))


if __name__ == "__main__":
    sys.exit(main())
