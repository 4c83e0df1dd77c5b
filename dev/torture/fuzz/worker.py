"""Cases in sequence in a separate process, which may crash."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import tempfile
from pathlib import Path

from dev.torture.fuzz.judge import judge
from dev.torture.fuzz.kind import find, numbered

ADDRESSES = 4 << 30  # bytes that a case may ask for


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder, in memory if possible."""
    shared = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="fuzz-", dir=shared if shared.is_dir() else None)


def limit_addresses() -> None:
    """Limit the address space to the present use plus ADDRESSES."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def work(name: str, seed: int, start: int, stop: int) -> None:
    """Run cases [start, stop) of a kind; a line to stdout before and after each."""
    faulthandler.enable()
    tell = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # keeps output of a case out of the results
    with scratch() as folder:
        kind = find(name)(Path(folder))
        if sys.platform == "linux":
            limit_addresses()
        for number in range(start, stop):
            case = numbered(kind, seed, number)
            tell.write(json.dumps({"start": number, "words": case.words}) + "\n")
            verdict = judge(case)
            tell.write(
                json.dumps(
                    {
                        "end": number,
                        "kind": verdict.kind,
                        "text": verdict.text,
                        "where": verdict.where,
                    }
                )
                + "\n"
            )
