#!/usr/bin/env python3
"""Generate responses constrained to JSON schemas, and validate them with another package.

python -m dev.torture.check_schemas                    # schemas 0 to 499 with the demo model
python -m dev.torture.check_schemas --start 7 --count 1 --show  # one schema and its response
python -m dev.torture.check_schemas --count 1000 --serve 4  # 4 parallel requests
"""

from __future__ import annotations

import argparse
import json
import sys


def main(argv: list[str] | None = None) -> int:
    """Return 0 if all responses are valid or truncated, 1 if any is wrong."""
    import llama_py
    from dev.torture.schemas.run import Told, answers, nth, summary
    from dev.torture.schemas.served import served
    from llama_py.loading.model import DEMO

    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("-m", "--model", help="GGUF file (default: the demo model)")
    p.add_argument("--start", type=int, default=0)
    p.add_argument("--count", type=int, default=500)
    p.add_argument("-n", "--max-tokens", type=int, default=900)
    p.add_argument("--show", action="store_true", help="print every schema and response")
    p.add_argument(
        "--serve",
        type=int,
        default=0,
        metavar="N",
        help="use llama-py-server with N parallel requests",
    )
    p.add_argument("-t", "--threads", type=int, default=2, help="threads of the server")
    args = p.parse_args(argv)
    numbers = range(args.start, args.start + args.count)
    told: list[Told] = []

    def tell(one: Told) -> None:
        told.append(one)
        if args.show or one.what != "valid":
            print(f"{one.number} {one.way}: {one.what}\n  {json.dumps(nth(one.number))}")
            print(f"  {one.text[:300]!r}")

    if args.serve:
        path = args.model or str(DEMO)
        for one in served(path, numbers, args.max_tokens, args.serve, args.threads):
            tell(one)
    else:
        with llama_py.Model(args.model) as model:
            for one in answers(model, numbers, args.max_tokens):
                tell(one)
    print(summary(told))
    return int(any(one.what.startswith("wrong") for one in told))


if __name__ == "__main__":
    sys.exit(main())
