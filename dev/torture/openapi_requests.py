#!/usr/bin/env python3
"""Random requests by the server's OpenAPI document, with schemathesis.

    python -m dev.torture.openapi_requests --examples 25 --seed 1

Starts a server of the demo model, and runs schemathesis (`pip install schemathesis`) on its
/openapi.json. All requests go to 127.0.0.1. The exit code is 1 if a response has a status of
5xx, or a status, media type or body that the document lacks.

schemathesis also sends limits and wrong values of each field, about 7,000 requests. If several
paths have the same operations, the seed chooses one path.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx

from dev.compare.load.servers import running

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
SMALL = ("-c", "512", "-np", "4", "-n", "4", "--no-warmup", "--timeout", "1")
NO_NETWORK = ("--media-urls", "none", "--models-manage", "none")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=25, help="random requests per operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reranker", default="", help="file of a reranker to serve instead")
    parser.add_argument("--workers", type=int, default=4, help="requests in parallel")
    parser.add_argument("--schemathesis", default="schemathesis", help="its command")
    args = parser.parse_args()
    code = "import sys; from llama_py_server.command import main; sys.exit(main())"
    kind = ("-m", args.reranker, "--rerank") if args.reranker else ("--embeddings",)
    with tempfile.TemporaryDirectory() as folder:
        enabled = ("--metrics", "--props", "--slot-save-path", folder)
        command = [sys.executable, "-c", code, *SMALL, *NO_NETWORK, *enabled, *kind]
        with running(command, Path(folder) / "log") as url:
            how = ("--max-examples", str(args.examples), "--seed", str(args.seed))
            how += ("--phases", "coverage,fuzzing", "--workers", str(args.workers))
            document = httpx.get(f"{url}/openapi.json", timeout=60).json()
            paths = [f"--include-path={path}" for path in choose_paths(document, args.seed)]
            file = Path(folder) / "openapi.json"  # schemathesis waits 10 s for a URL
            file.write_text(json.dumps(document))
            asked = (str(file), "--url", url, "--checks", ",".join(CHECKS), *how, *paths)
            limits = ("--continue-on-failure", "--request-timeout", "60")
            command = [args.schemathesis, "run", *limits, *asked]
            return subprocess.run(command, cwd=folder).returncode


def choose_paths(document: dict[str, Any], seed: int) -> list[str]:
    """Return the paths of a document, without further paths that have the same operations."""
    groups: dict[str, list[str]] = defaultdict(list)
    for path, operations in document["paths"].items():
        each = {method: {**one, "operationId": ""} for method, one in operations.items()}
        groups[json.dumps(each, sort_keys=True)].append(path)
    chosen = random.Random(seed)
    return [chosen.choice(paths) for paths in groups.values()]


if __name__ == "__main__":
    sys.exit(main())
