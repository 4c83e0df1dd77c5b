"""Drafts of a model that proposes a block of tokens at once
(common_speculative_impl_draft_dflash)."""

from __future__ import annotations

from llama_py.decoding.drafting.drafters._blocks import BlockDrafter


class DraftDflash(BlockDrafter):
    """Each token by itself, or by scores of pairs of tokens."""

    name = "draft-dflash"
