"""Prompts in all forms that requests may use (server-common.cpp:tokenize_input_prompts)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from llama_py_server.schema.media import decode_base64
from llama_py_server.wire.body import check_length
from llama_py_server.wire.errors import HTTPError, invalid

if TYPE_CHECKING:
    from llama_py.tokenizer import Tokenizer

MAX_TEXT = 8 << 20  # characters of a text: more than any context holds
MAX_PROMPTS = 1024  # prompts of a request; each reply repeats its settings
See = Callable[[str, Sequence[bytes]], list[int]]

_FORMS = (
    '"prompt" elements must be a string, a list of tokens, a JSON object containing a prompt'
    " string, or a list of mixed strings & tokens."
)


def parse_prompt(
    tokenizer: Tokenizer,
    value: Any,
    add_special: bool = True,
    parse_special: bool = True,
    see: See | None = None,
) -> list[int]:
    """Return the ids of one prompt: a text, ids, a mix of both, or {"prompt_string": ...}.

    Only a string at the beginning gets BOS if the model uses it. HTTPError for other
    types, and for ids outside of the vocabulary.

    see  makes the prompt of a text with images; None: images are not supported
    """
    if isinstance(value, dict) and "prompt_string" in value:
        if "multimodal_data" in value:
            return _parse_media_prompt(value, see)
        value = value["prompt_string"]
    if isinstance(value, str):
        return _check_ids(
            tokenizer, tokenizer.tokenize(clean_text(value), add_special, parse_special)
        )
    if not isinstance(value, list) or not all(_is_id(p) or isinstance(p, str) for p in value):
        raise invalid(_FORMS)
    found: list[int] = []
    for i, part in enumerate(value):
        if isinstance(part, str):
            found += tokenizer.tokenize(clean_text(part), add_special and i == 0, parse_special)
        else:
            found.append(part)
    return _check_ids(tokenizer, found)


def _parse_media_prompt(value: dict[str, Any], see: See | None) -> list[int]:
    if see is None:
        raise invalid("Multimodal data provided, but model does not support multimodal requests.")
    said, data = value["prompt_string"], value["multimodal_data"]
    if not isinstance(said, str) or not isinstance(data, list):
        raise invalid('"prompt_string" must be a string, "multimodal_data" an array of base64')
    return see(clean_text(said), [decode_base64(one) for one in data])


def parse_prompts(tokenizer: Tokenizer, value: Any, see: See | None = None) -> list[list[int]]:
    """Return the ids of each prompt: of one, or of each element of a list without numbers."""
    if isinstance(value, list) and not any(map(_is_id, value)):
        check_length("prompt", len(value), MAX_PROMPTS)
        found = [parse_prompt(tokenizer, one, see=see) for one in value]
    else:
        found = [parse_prompt(tokenizer, value, see=see)]
    if not found:
        raise invalid('"prompt" must not be empty')
    return found


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_text(text: str) -> None:
    """Raise HTTPError for a text that is too long for the tokenizer."""
    if len(text) > MAX_TEXT:
        why = f"a prompt must have at most {MAX_TEXT} characters, got {len(text)}"
        raise HTTPError("request_too_large", why)


def clean_text(text: str) -> str:
    """Replace lone surrogates, which JSON may have and tokenizers reject. HTTPError for a text that
    is too long."""
    check_text(text)
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text


def _check_ids(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    if any(not 0 <= id < tokenizer.n_vocab for id in ids):
        raise invalid("Prompt contains invalid tokens")
    return ids
