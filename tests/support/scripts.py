"""Responses of a model by a script: its sampler chooses the tokens of given texts."""

from __future__ import annotations

from typing import Any

import pytest

import llama_py.sampler
import llama_py.serving.answer


def use_script(monkeypatch: pytest.MonkeyPatch, *texts: str) -> list[str]:
    """Let the next responses be these texts. -> the texts that are left"""
    left = list(texts)
    true = llama_py.sampler.Sampler

    class Scripted(true):  # type: ignore[valid-type, misc]
        """Sampler of one response, which takes the next text with its first token."""

        script: list[int] | None = None

        def sample(self, logits: Any) -> int:
            if self.script is None:
                assert left, "the script has no more responses"
                tokenizer = self._tokenizer
                self.script = [*tokenizer.tokenize(left.pop(0), False), tokenizer.eos]
            return self.script.pop(0)

        def reset(self) -> None:
            super().reset()
            self.script = None

    monkeypatch.setattr(llama_py.sampler, "Sampler", Scripted)
    monkeypatch.setattr(llama_py.serving.answer, "Sampler", Scripted)
    return left
