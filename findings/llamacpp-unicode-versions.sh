#!/usr/bin/env bash
# llama.cpp b11739 (llama-cpp-py-sync 0.11739), with vocabularies that the script writes.
#
# Guess: one build has one version of Unicode, for the categories in pre-tokenizers and for NFC.
# Behavior: NFC (unigram tokenizer) composes Todhri's U+105D2 U+0307 to U+105C9, a pair of Unicode 16.
# In the categories U+105C9 is not a letter: BPE splits it from the letters before it.
# Why it matters: tables made by one `unicodedata` differ from llama.cpp in one of the two. Python 3.13
# has Unicode 15.1 and does not compose this pair; Python 3.14 has Unicode 16 and knows the letter.
#
# Output:
#     NFC of e U+0301 -> composed
#     NFC of U+105D2 U+0307 -> composed
#     "a" and U+10400 (Deseret) -> one word
#     "a" and U+105C9 (Todhri) -> two words
set -euo pipefail
source "$(dirname "$0")/b11739/install.sh"
run - "$dir" <<'END'
import sys

from engine import load, tokenize, write

visible = [chr(n) for n in [*range(33, 127), *range(161, 173), *range(174, 256)]]
BYTES = [*visible, *(chr(256 + n) for n in range(256 - len(visible)))]
KINDS = {"<unk>": 2, "</s>": 3}


def tokens(words, more_keys, text):
    keys = {"context_length": 64, "embedding_length": 32, "block_count": 1, **more_keys}
    keys |= {".tokenizer.ggml.tokens": words, ".tokenizer.ggml.scores": [-1.0] * len(words)}
    keys |= {".tokenizer.ggml.token_type": [KINDS.get(word, 1) for word in words]}
    for name in ("bos", "eos"):
        keys[f".tokenizer.ggml.{name}_token_id"] = words.index("</s>")
    path = f"{sys.argv[1]}/vocab.gguf"
    write(path, "llama", keys, {})
    return [words[token] for token in tokenize(load(path, vocab_only=True), text)]


def composes(text, whole):
    keys = {".tokenizer.ggml.model": "t5", ".tokenizer.ggml.normalizer.nfc": True}
    keys[".tokenizer.ggml.unknown_token_id"] = 0
    found = tokens(["<unk>", "</s>", *text, whole], keys, text)
    return "composed" if found == [whole] else "not composed" if found == [*text] else str(found)


def is_word(text):
    """The vocabulary joins "a" with the first byte of the letter, if both are in one word."""
    keys = {".tokenizer.ggml.model": "gpt2", ".tokenizer.ggml.pre": "qwen2"}
    keys[".tokenizer.ggml.merges"] = ["a \xf0"]
    joined = "a\xf0" in tokens([*BYTES, "a\xf0", "</s>"], keys, text)
    return "one word" if joined else "two words"


seen = {
    "NFC of e U+0301": composes("e\u0301", "\xe9"),
    "NFC of U+105D2 U+0307": composes("\U000105d2\u0307", "\U000105c9"),
    '"a" and U+10400 (Deseret)': is_word("a\U00010400"),
    '"a" and U+105C9 (Todhri)': is_word("a\U000105c9"),
}
for case, result in seen.items():
    print(case, "->", result)
if [*seen.values()] != ["composed", "composed", "one word", "two words"]:
    raise SystemExit("changed")
END
