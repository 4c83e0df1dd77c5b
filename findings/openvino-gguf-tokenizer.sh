#!/usr/bin/env bash
# OpenVINO GenAI 2026.4.1.0 with openvino-tokenizers 2026.4.1.0; files made by gguf-py 0.19.0.
#
# Guess: the tokenizer that OpenVINO GenAI builds from a GGUF file gives the tokens of the file's
# model. It adds BOS if tokenizer.ggml.add_bos_token is true, and refuses what it does not know.
# Behavior: BOS is never added, whatever the key and `add_special_tokens` specify. A text of more
# than 8192 tokens loses its beginning, whatever max_length specifies. An unknown
# tokenizer.ggml.pre is accepted; llama.cpp refuses such a file.
# Why it matters: Llama 3 and others expect BOS, and their answers get worse without it. The start
# of a long prompt, such as the system prompt, disappears. Nothing is printed in any of these cases.
#
# Output:
#     add_bos_token true -> [97, 99]
#     add_bos_token false -> [97, 99]
#     add_special_tokens=True -> [97, 99]
#     10000 tokens -> (8192, 'the last')
#     10000 tokens, max_length=100 -> (8192, 'the last')
#     pre 'no-such-rule' -> [97, 99]
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check gguf==0.19.0 numpy==2.4.6 \
    openvino==2026.4.1 openvino-genai==2026.4.1.0 openvino-tokenizers==2026.4.1.0
"$dir/venv/bin/python" - "$dir" <<'EOF'
import sys

import gguf
import openvino_genai

folder = sys.argv[1]


def open_tokenizer(add_bos=True, pre="llama-bpe"):
    """Write a vocabulary of bytes and return OpenVINO GenAI's tokenizer of it."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    names = {byte: chr(byte) for byte in printable}
    names |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    writer = gguf.GGUFWriter(folder + "/model.gguf", "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([*(names[byte] for byte in range(256)), "ab", "<bos>", "<eos>"])
    writer.add_token_types([1] * 257 + [3] * 2)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(258)
    writer.add_add_bos_token(add_bos)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return openvino_genai.Tokenizer(folder + "/model.gguf")


def encode(text="ac", model=None, **how):
    model = model or open_tokenizer()
    return model.encode(text, **how).input_ids.data[0].tolist()


def cut(**how):
    """Return the number of tokens, and whether the text's last tokens are among them."""
    ids = encode("x" + "ac" * 4999 + "y", **how)
    return len(ids), "the last" if ids[-1] == ord("y") else "the first"


seen = {
    "add_bos_token true": encode(),
    "add_bos_token false": encode(model=open_tokenizer(add_bos=False)),
    "add_special_tokens=True": encode(add_special_tokens=True),
    "10000 tokens": cut(),
    "10000 tokens, max_length=100": cut(max_length=100),
    "pre 'no-such-rule'": encode(model=open_tokenizer(pre="no-such-rule")),
}
last = (8192, "the last")
expected = dict(zip(seen, [[97, 99], [97, 99], [97, 99], last, last, [97, 99]]))

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
