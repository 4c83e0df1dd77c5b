"""Drafts of a model that proposes a block of tokens at once
(common_speculative_impl_draft_dflash)."""

from __future__ import annotations

from llama_py.decoding.drafting.drafters._blocks import BlockDrafter


class DraftDflash(BlockDrafter):
    """Draft blocks with independent tokens, or with scores of token pairs."""

    name = "draft-dflash"
