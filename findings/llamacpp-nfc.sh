#!/usr/bin/env bash
# llama.cpp b11739 (llama-cpp-py-sync 0.11739), with vocabularies that the script writes.
#
# Guess: `tokenizer.ggml.normalizer.nfc = true` composes a text before it is tokenized, whatever the
# vocabulary's model is. tokenizer.json files of BPE models (Qwen) have this normalizer.
# Behavior: only the unigram tokenizer (model `t5`) does it. BPE (model `gpt2`) accepts the key and
# ignores it: "e" with U+0301 has other tokens than U+00E9.
# Why it matters: a tokenizer that follows the key for BPE gives other tokens than llama.cpp for
# decomposed text, for example names of files from macOS.
#
# Output (tokens of U+00E9 and of "e" U+0301):
#     t5, nfc = False -> ['\xe9'] ['e', '\u0301']
#     t5, nfc = True -> ['\xe9'] ['\xe9']
#     gpt2, nfc = False -> ['\xc3\xa9'] ['e', '\xcc', '\u0123']
#     gpt2, nfc = True -> ['\xc3\xa9'] ['e', '\xcc', '\u0123']
set -euo pipefail
source "$(dirname "$0")/b11739/install.sh"
run - "$dir" <<'END'
import sys

from engine import load, tokenize, write

KINDS = {"<unk>": 2, "</s>": 3}
UNIGRAM = ["<unk>", "</s>", "e", "\u0301", "\xe9"]
visible = [chr(n) for n in [*range(33, 127), *range(161, 173), *range(174, 256)]]
BYTES = [*visible, *(chr(256 + n) for n in range(256 - len(visible)))]
BPE = {".tokenizer.ggml.merges": ["\xc3 \xa9"], ".tokenizer.ggml.pre": "qwen2"}


def tokens(model, nfc, text):
    words = UNIGRAM if model == "t5" else [*BYTES, "\xc3\xa9", "</s>"]
    keys = {"context_length": 64, "embedding_length": 32, "block_count": 1}
    keys |= {".tokenizer.ggml.model": model, ".tokenizer.ggml.tokens": words}
    keys |= {".tokenizer.ggml.token_type": [KINDS.get(word, 1) for word in words]}
    keys |= {".tokenizer.ggml.eos_token_id": words.index("</s>")}
    keys |= {".tokenizer.ggml.bos_token_id": words.index("</s>")}
    keys |= {".tokenizer.ggml.unknown_token_id": 0} if model == "t5" else BPE
    keys |= {".tokenizer.ggml.scores": [-1.0] * len(words)}
    path = f"{sys.argv[1]}/vocab.gguf"
    write(path, "llama", keys | {".tokenizer.ggml.normalizer.nfc": nfc}, {})
    return [words[token] for token in tokenize(load(path, vocab_only=True), text)]


seen = {}
for model in ("t5", "gpt2"):
    for nfc in (False, True):
        one, two = (tokens(model, nfc, text) for text in ("\xe9", "e\u0301"))
        print(f"{model}, nfc = {nfc} -> {ascii(one)} {ascii(two)}")
        seen[model, nfc] = one == two
if [key for key, equal in seen.items() if equal] != [("t5", True)]:
    raise SystemExit("changed")
END
