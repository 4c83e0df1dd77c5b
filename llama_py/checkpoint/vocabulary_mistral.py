"""Vocabularies of Mistral's own tokenizer files: tekken.json and tokenizer.model.vN
(gguf-py: MistralVocab)."""

from __future__ import annotations

import binascii
import logging
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ggml_py.errors import ModelError
from llama_py.checkpoint.sentencepiece import CONTROL, NORMAL, USER_DEFINED, read_sentencepiece
from llama_py.checkpoint.tiktoken import as_text
from llama_py.checkpoint.vocabulary import Vocabulary

log = logging.getLogger("llama_py")

N_BYTES = 256  # tokens of one byte
# Special tokens of files that do not list them
SPECIAL = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]",
    "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
)  # fmt: skip
ROLES = {"bos": "<s>", "eos": "</s>", "unknown": "<unk>", "padding": "<pad>"}
# Names of llama.cpp's templates, by version of the tokenizer, with tekken.json or without
TEMPLATES = {
    ("v1", False): "mistral-v1",
    ("v3", False): "mistral-v3",
    ("v3", True): "mistral-v3-tekken",
    ("v7", False): "mistral-v7",
    ("v7", True): "mistral-v7-tekken",
}


def write_mistral(v: Vocabulary) -> None:
    """Write the vocabulary of tekken.json, or of the newest tokenizer.model*."""
    out, is_tekken = v.out, v.has("tekken.json")
    if is_tekken:
        tokens, scores, types, special, version = _tekken(v)
    else:
        tokens, scores, types, special, version = _pieces(v)
    if not is_tekken:
        out.text("tokenizer.ggml.model", "llama")
    for key, text in ROLES.items():
        id = special.get(text, special["</s>"])
        out.u32(f"tokenizer.ggml.{key}_token_id", id)
    out.array("tokenizer.ggml.tokens", tokens)
    out.array("tokenizer.ggml.scores", scores)
    out.array("tokenizer.ggml.token_type", types)
    out.u32("vocab_size", len(tokens))
    out.boolean("tokenizer.ggml.add_bos_token", True)
    out.boolean("tokenizer.ggml.add_eos_token", False)
    template = v.folder.text("chat_template.jinja") or TEMPLATES.get((version, is_tekken))
    if template is not None:
        out.text("tokenizer.chat_template", template)
    else:
        log.warning("the folder has no chat_template.jinja, so the file has no chat template")


Found = tuple[list[str], Sequence[float], list[int], Mapping[str, int], str]


def _tekken(v: Vocabulary) -> Found:
    path = v.folder.path / "tekken.json"
    stored = v.folder.json("tekken.json")
    try:
        config = stored["config"]
        n_vocab, n_special = config["default_vocab_size"], config["default_num_special_tokens"]
        listed = stored.get("special_tokens") or [{"token_str": text} for text in SPECIAL]
        texts = [token["token_str"] for token in listed][:n_special]
        ranks = {
            b64decode(token["token_bytes"], validate=True): token["rank"]
            for token in stored["vocab"][: n_vocab - n_special]
        }
    except (KeyError, TypeError, binascii.Error) as e:
        raise ModelError(f"{path}: not a tokenizer of Mistral: {e!r:.100}") from None
    texts += [f"<SPECIAL_{id}>" for id in range(len(texts), n_special)]
    v.out.text("tokenizer.ggml.model", "gpt2")
    v.out.text("tokenizer.ggml.pre", v.pre or "tekken")
    v.out.array("tokenizer.ggml.merges", [*_merges(ranks)])
    tokens = [*texts, *map(as_text, ranks)]
    types = [CONTROL] * n_special + [NORMAL] * len(ranks)
    special = {text: id for id, text in enumerate(texts)}
    return tokens, [0] * len(tokens), types, special, str(config.get("version", "v3"))


def _merges(ranks: Mapping[bytes, int]) -> Iterator[str]:
    """Yield all pairs of tokens that make a token, in order of its rank and of theirs."""
    for token, rank in sorted(ranks.items(), key=lambda pair: pair[1]):
        if rank < N_BYTES:
            continue
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
        pairs = [(a, b) for a, b in cuts if a in ranks and b in ranks]
        if not pairs:
            raise ModelError(
                f"tekken.json: the token of rank {rank} must join two other tokens; download "
                "it again"
            )
        for a, b in sorted(pairs, key=lambda pair: (ranks[pair[0]], ranks[pair[1]])):
            yield f"{as_text(a)} {as_text(b)}"


def _pieces(v: Vocabulary) -> Found:
    names = sorted(path.name for path in v.folder.path.glob("tokenizer.model*"))
    if not names:
        raise ModelError(f"{v.folder.path}: tekken.json or tokenizer.model is missing; download it")
    pieces: list[Any] = read_sentencepiece(v.folder.path / names[-1]).pieces
    tokens = [piece.text.decode("utf-8", "surrogateescape") for piece in pieces]
    special = {text: id for id, text in enumerate(tokens)}
    if "</s>" not in special:
        raise ModelError(
            f"{v.folder.path / names[-1]}: the token </s> is missing; download the file again"
        )
    version = names[-1].rpartition(".")[2].partition("m")[0]  # v7m1: with images
    return (
        tokens,
        [piece.score for piece in pieces],
        [NORMAL if piece.type == USER_DEFINED else piece.type for piece in pieces],
        special,
        version or "v1",
    )
