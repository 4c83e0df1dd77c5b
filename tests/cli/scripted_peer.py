"""An engine that does what its name says: a worker of compare_speed.py without an engine.

The name has words: fast or slow; "no KIND" refuses it, "dies KIND" ends the process at it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

SECONDS = {"ours": 2.0, "fast": 1.0, "slow": 4.0}


def main(name: str) -> None:
    words = name.split(",")
    for line in sys.stdin:
        request = json.loads(line)
        with Path(os.environ["SCRIPTED_LOG"]).open("a") as log:
            log.write(f"{words[0]} {line}")
        kind = request["do"]
        if f"dies {kind}" in words:
            os._exit(3)
        if f"no {kind}" in words:
            reply: dict[str, object] = {"error": f"ValueError: {kind} is not for me"}
        else:
            answers = {"load": None, "context": None, "check": 7, "cache": 100, "peak": 4096}
            reply = {"answer": answers.get(kind, SECONDS[words[0]])}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main(sys.argv[-1])
