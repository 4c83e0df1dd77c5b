#!/usr/bin/env bash
# gguf 0.19.0, transformers 5.23.0, tokenizers 0.23.3.
#
# Guess: LlamaHfVocab, which llama.cpp's converter uses for a SentencePiece BPE that is stored in
# tokenizer.json only, gives each token a score that orders the merges, as tokenizer.model has it.
# Behavior: every token has the score -1000, whatever the order of the merges in tokenizer.json.
# Why it matters: llama.cpp's SentencePiece tokenizer joins the pair with the highest score first, and
# of equal scores the leftmost. Its tokens then differ from those of the tokenizer: below, "abc" is
# b + c first by the merges, and a + b first by the scores. llama-py-gguf convert gives the negative id.
#
# Output:
#     scores of 'ab' and 'bc': -1000.0 -1000.0
#     tokens of the tokenizer: ['a', 'bc']
#     tokens by the scores:    ['ab', 'c']
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check gguf==0.19.0 transformers==5.23.0 tokenizers==0.23.3
"$dir/venv/bin/python" - "$dir/model" <<'EOF'
import json
import sys
from pathlib import Path

from gguf.vocab import LlamaHfVocab
from tokenizers import Tokenizer, decoders, models

folder = Path(sys.argv[1])
folder.mkdir()
texts = ["<unk>", "a", "b", "c", "bc", "ab"]
model = models.BPE(
    {text: i for i, text in enumerate(texts)}, [("b", "c"), ("a", "b")], unk_token="<unk>",
    byte_fallback=True,
)
tokenizer = Tokenizer(model)
tokenizer.decoder = decoders.Sequence([decoders.Fuse()])
tokenizer.save(str(folder / "tokenizer.json"))
config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}
(folder / "tokenizer_config.json").write_text(json.dumps(config))
scores = {text.decode(): score for text, score, _ in LlamaHfVocab(folder).all_tokens()}

symbols = list("abc")  # llama.cpp: the pair with the highest score, of equal ones the leftmost
while pairs := [(scores[a + b], -i) for i, (a, b) in enumerate(zip(symbols, symbols[1:])) if a + b in scores]:
    i = -max(pairs)[1]
    symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
own = tokenizer.encode("abc").tokens
print(f"scores of 'ab' and 'bc': {scores['ab']} {scores['bc']}")
print(f"tokens of the tokenizer: {own}")
print(f"tokens by the scores:    {symbols}")
assert (scores["ab"], scores["bc"]) == (-1000.0, -1000.0)
assert own == ["a", "bc"] and symbols == ["ab", "c"]
EOF
