#!/usr/bin/env bash
# huggingface_hub 2.4.0, against a local server that closes each connection.
#
# Guess: the calls of one client retry alike when a connection fails.
# Behavior: `model_info` and `hf_hub_download` try once. `list_repo_files`, which asks for pages,
# tries six times with growing pauses, about 23 seconds in all.
# Why it matters: a command that lists the files of a repository before it downloads one seems to
# hang without a network, while a command that asks for the model fails at once.
#
# Output (connections per call):
#     model_info -> 1
#     hf_hub_download -> 1
#     list_repo_files -> 6
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check huggingface_hub==2.4.0
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
"$dir/venv/bin/python" - "$dir" <<'EOF'
import contextlib
import socket
import sys
import threading

from huggingface_hub import HfApi

listener = socket.create_server(("127.0.0.1", 0))
connections = []


def refuse():
    while True:
        connection, _ = listener.accept()
        connections.append(1)
        connection.close()


threading.Thread(target=refuse, daemon=True).start()
api = HfApi(endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}", token=False)


def count(call):
    connections.clear()
    with contextlib.suppress(Exception):
        call()
    return len(connections)


seen = {
    "model_info": count(lambda: api.model_info("some/model")),
    "hf_hub_download": count(
        lambda: api.hf_hub_download("some/model", "model.gguf", cache_dir=sys.argv[1])
    ),
    "list_repo_files": count(lambda: api.list_repo_files("some/model")),
}
expected = {"model_info": 1, "hf_hub_download": 1, "list_repo_files": 6}

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
