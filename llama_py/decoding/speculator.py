"""Sequences with drafters, as users create them.

with Speculator(ctx, spec_type="draft-mtp") as speculator:
    speculator.extend(0, prompt)
    while ...:
        speculator.advance()                         # draft, and verify all drafts in one batch
        while speculator.has_rows(0):
            id, logits = speculator.take(0, choose)  # once per accepted token, and once
    speculator.finish(0)
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from llama_py.context import Context
from llama_py.decoding.sequences import Sequences
from llama_py.params.speculative import SpeculativeParams
from llama_py.support.signature import takes

_OPTIONS = [f.name for f in fields(SpeculativeParams)]


class Speculator(Sequences):
    """Sequences of a context with drafted and verified tokens."""

    @takes(SpeculativeParams)
    def __init__(self, ctx: Context, **options: Any) -> None:
        """Create drafters; options are the fields of SpeculativeParams.

        Raises ContextError if the model does not support a draft method, ModelError if the draft
        model has another vocabulary, and the errors of loading it.
        """
        super().__init__(ctx, SpeculativeParams(**options))


def drafting_options(p: SpeculativeParams) -> SpeculativeParams:
    """Return only the drafting options of parameters."""
    return SpeculativeParams(**{name: getattr(p, name) for name in _OPTIONS})
