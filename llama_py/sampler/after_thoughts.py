"""Constraint on the content of a response that does not apply to its reasoning."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from llama_py.params.choosers import Thinking
from llama_py.sampler.candidates import Candidates
from llama_py.sampler.constraint import Constraint
from llama_py.tokenizer import Tokenizer

MARK = re.compile(r"<\|[^|<>]+\|>")  # a special token's text
SPACES = 8  # most bytes of white space between reasoning and content

Ids = npt.NDArray[np.intp]
Headers = tuple[tuple[tuple[int, ...], bool], ...]  # tokens; whether reasoning follows them


class AfterThoughts:
    """Apply `inner` from the first token of the content.

    Reasoning begins if the prompt opens it, or with its marker if the vocabulary has special
    tokens for that; letters that spell a marker are content. Reasoning may be any text, but does
    not end the response. A token with text beyond the end of the reasoning is refused. If the
    format marks the content, and the vocabulary has the mark, the content follows that mark.
    """

    holds = True

    def __init__(self, inner: Constraint, tokenizer: Tokenizer, thinking: Thinking) -> None:
        self.inner, self.pieces, self.eog = inner, tokenizer.pieces, tokenizer.eog
        end, *others = (end.strip() for end in thinking.ends)
        self.end, self.others = end.encode(), tuple(other.encode() for other in others)
        self.closing = tokenizer.tokenize(end, False)
        self.inside, self.spaces, self.most = thinking.inside, thinking.spaces, thinking.most
        spaced = thinking.spaced
        start = _headers(tokenizer, thinking.start, True, spaced) if thinking.may_begin else ()
        self.first = start + _headers(tokenizer, thinking.answer, False, spaced)
        self.after = _headers(tokenizer, thinking.after, False, spaced)
        self.reset()

    def reset(self) -> None:
        self.inner.reset()
        self.thinking, self.left = self.inside, self.most
        self.headers, self.at = (() if self.inside else self.first), 0
        self.trial: Constraint | None = None  # `inner` after the same tokens
        self.text = b""  # the current end of the reasoning
        self.gap = b""  # white space since the reasoning
        self.may_gap = False
        self.said = False  # True if `inner` has begun

    def copy(self) -> AfterThoughts:
        other = copy.copy(self)
        other.inner = self.inner.copy()
        other.trial = self.trial and self.trial.copy()
        return other

    @property
    def _may_answer(self) -> bool:
        """True if the content may begin here."""
        return not self.thinking and not self.at and all(thinks for _, thinks in self.headers)

    @property
    def _content(self) -> Constraint | None:
        """The constraint of the next token if it is content; None if it cannot be."""
        return self.inner if self.said or self._may_answer else self.trial

    @property
    def complete(self) -> bool:
        content = self._content
        return content is not None and content.complete

    def allows(self, id: int) -> bool:
        if self.said:
            return self.inner.allows(id)
        if not 0 <= id < len(self.pieces):
            return False
        if self.thinking:
            return self._continues(id)
        return self._is_header(id) or self._is_content(id)

    def n_allowed(self, ids: Sequence[int]) -> int:
        if self.said:
            return self.inner.n_allowed(ids)
        trial = self.copy()
        for n, id in enumerate(ids):
            if not trial.allows(id):
                return n
            trial.accept(id)
        return len(ids)

    def apply(self, c: Candidates) -> Candidates:
        if self.said:
            return self.inner.apply(c)
        content = self._content
        if content is None:
            left = np.full_like(c.logits, -np.inf)
        else:
            left = content.apply(c).logits.copy()
        if self.thinking:
            ids = self._reasoning_ids()
        else:
            begun = {h[0][self.at] for h in self.headers}
            ids = [id for id in (*begun, *self._space_ids) if self._is_header(id)]
        left[ids] = c.logits[ids]
        return Candidates(c.ids, left)

    def _reasoning_ids(self) -> Sequence[int] | Ids:
        """Return the tokens allowed within the reasoning."""
        if self.left is not None and self.left <= 0:
            return [self.closing[min(-self.left, len(self.closing) - 1)]]
        if any(other in self.text for other in self.others):
            return []
        plain, others = self._ids_by_marker
        return np.append(plain, [id for id in others if self._continues(id)]).astype(np.intp)

    @cached_property
    def _space_ids(self) -> list[int]:
        """Tokens of white space that can follow reasoning."""
        if isinstance(self.spaces, str):
            spaces = self.spaces.encode()
            return [id for id, piece in enumerate(self.pieces) if piece and piece in spaces]
        return [id for id, piece in enumerate(self.pieces) if piece.isspace()]

    @cached_property
    def _ids_by_marker(self) -> tuple[Ids, list[int]]:
        """Tokens without and with the last byte of an end marker; both without end tokens."""
        last = {marker[-1] for marker in (self.end, *self.others) if marker}
        found: tuple[list[int], list[int]] = ([], [])
        for id, piece in enumerate(self.pieces):
            if id not in self.eog:
                found[not last.isdisjoint(piece)].append(id)
        return np.array(found[0], np.intp), found[1]

    def accept(self, id: int) -> None:
        if self.said:
            self.inner.accept(id)
        elif self.thinking:
            self._think(self.pieces[id])
        elif self._is_content(id) and not self._continues_header(id):
            assert self._content is not None
            self.inner, self.said = self._content, True
            self.inner.accept(id)
        elif self._is_gap(id):
            self.gap += self.pieces[id]
        else:
            self._open(id)

    def _open(self, id: int) -> None:
        """Take a token of a header, which may also be the start of the content."""
        content = self._content if self._is_content(id) else None
        self.trial = content and content.copy()
        if self.trial is not None:
            self.trial.accept(id)
        self.headers = tuple(h for h in self.headers if h[0][self.at] == id)
        self.at += 1
        for ids, thinks in self.headers:
            if len(ids) == self.at:
                self.thinking, self.headers, self.at, self.may_gap = thinks, (), 0, False
                self.trial = None
                return

    def _think(self, piece: bytes) -> None:
        self.text = (self.text + piece)[-4 * max(len(self.end), len(piece)) :]
        self.left = None if self.left is None else self.left - 1
        if self.end in self.text:
            self.thinking, self.text, self.headers = False, b"", self.after
            self.gap, self.may_gap = b"", True

    def _continues(self, id: int) -> bool:
        """Return True if a token may follow within the reasoning."""
        if self.left is not None and self.left <= 0:  # limit reached: end the reasoning
            return id == self.closing[min(-self.left, len(self.closing) - 1)]
        text = self.text + self.pieces[id]
        _, ended, beyond = text.partition(self.end)
        is_other = any(other in text for other in self.others)
        return id not in self.eog and not is_other and not (ended and beyond.strip())

    def _is_header(self, id: int) -> bool:
        """Return True if a token belongs to a header, or to the white space after reasoning."""
        return self._continues_header(id) or self._is_gap(id)

    def _continues_header(self, id: int) -> bool:
        """Return True if a token is the next of a header."""
        return any(ids[self.at] == id for ids, _ in self.headers)

    def _is_content(self, id: int) -> bool:
        content = self._content
        return content is not None and content.allows(id)

    def _is_gap(self, id: int) -> bool:
        if self.at or not self.may_gap or not self.pieces[id]:
            return False
        gap = self.gap + self.pieces[id]
        if isinstance(self.spaces, str):
            return self.spaces.encode().startswith(gap)
        return self.spaces and len(gap) <= SPACES and not gap.strip()


def _headers(tokenizer: Tokenizer, text: str, thinks: bool, spaced: bool) -> Headers:
    """Return the tokens of a marker if it has a special token; spaced: also with a space after each
    special token."""
    texts = [text.rstrip()] + ([MARK.sub(r"\g<0> ", text).rstrip()] if spaced else [])
    found = dict.fromkeys(tuple(tokenizer.tokenize(one, False)) for one in texts)
    return tuple((ids, thinks) for ids in found if any(map(tokenizer.is_special, ids)))
