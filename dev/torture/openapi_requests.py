#!/usr/bin/env python3
"""Random requests by the server's OpenAPI document, with schemathesis.

    python -m dev.torture.openapi_requests --examples 25 --seed 1

Starts a server of the demo model, and runs schemathesis (`pip install schemathesis`) on its
/openapi.json. All requests go to 127.0.0.1. The exit code is 1 if a response has a status of
5xx, or a status, media type or body that the document lacks.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from dev.compare.load.servers import running

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
SMALL = ("-c", "512", "-np", "2", "-n", "4", "--no-warmup", "--timeout", "1")
NO_NETWORK = ("--media-urls", "none", "--models-manage", "none")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=25, help="random requests per operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reranker", default="", help="file of a reranker to serve instead")
    parser.add_argument("--schemathesis", default="schemathesis", help="its command")
    args = parser.parse_args()
    code = "import sys; from llama_py_server.command import main; sys.exit(main())"
    kind = ("-m", args.reranker, "--rerank") if args.reranker else ("--embeddings",)
    with tempfile.TemporaryDirectory() as folder:
        enabled = ("--metrics", "--props", "--slot-save-path", folder)
        command = [sys.executable, "-c", code, *SMALL, *NO_NETWORK, *enabled, *kind]
        with running(command, Path(folder) / "log") as url:
            how = ("--max-examples", str(args.examples), "--seed", str(args.seed))
            phases = ("--phases", "examples,coverage,fuzzing", "--continue-on-failure")
            asked = (f"{url}/openapi.json", "--checks", ",".join(CHECKS), *how, *phases)
            return subprocess.run([args.schemathesis, "run", *asked], cwd=folder).returncode


if __name__ == "__main__":
    sys.exit(main())
