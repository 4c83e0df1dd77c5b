#!/usr/bin/env bash
# lm_eval 0.4.13, model `local-completions` with the tokenizer of a server (`/tokenizer_info`).
#
# Guess: the server's tokenizer gives the same requests as the same tokenizer from a folder.
# Behavior: if BOS has id 0, a text begins with EOS (`bos_token_id or eos_token_id`). A chat template
# is not applied: `apply_chat_template` returns the messages, and a log-likelihood task then calls
# `rstrip` of a list.
# Why it matters: perplexities of models whose BOS is token 0 differ without an error, and
# `--apply_chat_template` works with `tokenizer_backend=huggingface` only.
#
# Output:
#     prefix token with BOS 0, EOS 1 -> 1
#     prefix token with BOS 2, EOS 1 -> 2
#     apply_chat_template -> list
#     log-likelihood of a chat -> AttributeError: 'list' object has no attribute 'rstrip'
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check "lm_eval[api]==0.4.13"
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
"$dir/venv/bin/python" - <<'EOF'
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

from lm_eval.models.openai_completions import LocalCompletionsAPI

IDS = {"<eos>": 1}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply({"bos_token": "<bos>", "eos_token": "<eos>", "chat_template": "{{ messages }}"})

    def do_POST(self):
        text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"]
        self.reply({"tokens": [IDS.get(text, 5)]})

    def reply(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/v1/completions"


def prefix(bos):
    IDS["<bos>"] = bos
    return LocalCompletionsAPI(base_url=url, model="any").prefix_token_id


seen = {f"prefix token with BOS {bos}, EOS 1": prefix(bos) for bos in (0, 2)}
lm = LocalCompletionsAPI(base_url=url, model="any")
chat = lm.apply_chat_template([{"role": "user", "content": "Who are you?"}])
seen["apply_chat_template"] = type(chat).__name__
try:
    lm.loglikelihood([SimpleNamespace(args=(chat, " a"))])
except AttributeError as error:
    seen["log-likelihood of a chat"] = f"AttributeError: {error}"

for key, value in seen.items():
    print(key, "->", value)
expected = [1, 2, "list", "AttributeError: 'list' object has no attribute 'rstrip'"]
if [*seen.values()] != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
