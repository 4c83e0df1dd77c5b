"""Decisions of models that score the mask token of each option (llama.cpp's server-decision.cpp,
types "laya" and "lfm2-d1-omni"). Parts of a prompt have the lengths of the models' training."""

from __future__ import annotations

from typing import Any

from ggml_py.errors import ModelError
from llama_py.chat import ChatTemplate
from llama_py.gguf.metadata import Metadata
from llama_py.text.decision_pointer import hide_special
from llama_py.text.decision_rows import RowPrompt
from llama_py.text.decision_types import KINDS, Question, replace_texts
from llama_py.tokenizer import Tokenizer

MAX_OPTION = 48  # tokens of an option's text, in prompts with a head
MAX_TOKENS = 16384  # of prompts in pieces
# Texts in the template of prompts in pieces: between pieces, and at the start of limited pieces.
START, SEPARATOR = "<<d1omni:", "<<d1omni:sep>>"
STATE, QUESTION, OPTION = "<<d1omni:state>>", "<<d1omni:question>>", "<<d1omni:option>>"


def head_prompt(
    template: ChatTemplate, tokenizer: Tokenizer, meta: Metadata, state: Any, question: Question
) -> RowPrompt:
    """Return the prompt of a question: start, question, separator, mask and text of each option,
    separator, state, separator. The parts before the state have at most max_head_tokens.

    Raises:
        ModelError: The file lacks the limit or a token, or the template has another layout.
    """
    mask, sep = _special(tokenizer, "mask"), _special(tokenizer, "sep")
    limit = meta.get(f"{meta['general.architecture']}.decision.max_head_tokens")
    if not isinstance(limit, int) or limit < 1:
        raise ModelError(
            f"decision.max_head_tokens must be an integer of at least 1, got {limit!r}; convert "
            "the model again"
        )
    text = tokenizer.vocab.texts[mask]
    shown = replace_texts(_show(state, question), lambda value: value.replace(text, " "))
    ids = tokenizer.tokenize(template.render_variables(**shown, images=[]), False)
    found = [i for i, id in enumerate(ids) if id == mask]
    if len(found) != len(question.options) or found[0] < 2 or {ids[found[0] - 1], ids[-1]} != {sep}:
        raise _wrong_layout()
    end = ids.index(sep, found[-1])
    if end + 1 >= len(ids):
        raise _wrong_layout()
    options = [ids[a:b][: MAX_OPTION + 1] for a, b in zip(found, [*found[1:], end], strict=True)]
    if sum(map(len, options)) + 16 > limit:
        most = max(4, max(limit - 16, 0) // len(options))
        options = [option[:most] for option in options]
    most = max(8, limit - sum(map(len, options)))
    tokens, masks = [*ids[: min(found[0] - 1, 1 + most)], sep], list[int]()
    for option in options:
        masks.append(len(tokens))
        tokens += option
    return RowPrompt([question], [*tokens, *ids[end:]], masks, column=KINDS.index(question.kind))


def piece_prompt(
    template: ChatTemplate, tokenizer: Tokenizer, state: Any, question: Question
) -> RowPrompt:
    """Return the prompt of a question, whose pieces are tokenized separately. The question and the
    options have limits; the state has the rest.

    Raises:
        ModelError: The vocabulary has no mask, the template has no state, or options do not fit.
    """
    mask, n = _special(tokenizer, "mask"), len(question.options)
    shown = replace_texts(_show(state, question), hide_special, keys=True)
    shown = replace_texts(shown, lambda text: text.replace(START, "<<d1omni "))
    marks = {"sep": SEPARATOR, "mark_state": STATE, "mark_question": QUESTION}
    text = template.render_variables(**shown, **marks, mark_option=OPTION, audio=False, images=[])
    budget = max(96, min(24 * n + 32, MAX_TOKENS // 2))
    limits = {STATE: MAX_TOKENS, QUESTION: budget, OPTION: max(2, (budget - 3 * n) // n)}
    first, *pieces = text.split(SEPARATOR)
    parts, places = list[list[int]](), list[int]()
    for piece in pieces:
        mark = next((mark for mark in limits if piece.startswith(mark)), "")
        ids = tokenizer.tokenize(piece.removeprefix(mark), False)
        places += [len(parts)] * (mark == STATE)
        parts.append(ids[: limits[mark]] if mark else ids)
    if first or len(places) != 1:
        raise _wrong_layout()
    (place,) = places
    others = sum(map(len, parts)) - len(parts[place])
    parts[place] = parts[place][: max(MAX_TOKENS - others, 0)]
    tokens = [id for part in parts for id in part][:MAX_TOKENS]
    masks = [i for i, id in enumerate(tokens) if id == mask]
    if len(masks) != n:
        raise ModelError("the options do not fit in the context")
    return RowPrompt([question], tokens, masks, column=KINDS.index(question.kind))


def _show(state: Any, question: Question) -> dict[str, Any]:
    return {**question.show(), "state": state}


def _special(tokenizer: Tokenizer, name: str) -> int:
    id = tokenizer.special_ids.get(name)
    if id is None:
        raise ModelError(f"decision model has no {name} token; convert the model again")
    return id


def _wrong_layout() -> ModelError:
    return ModelError("unexpected layout of the decision prompt; convert the model again")
