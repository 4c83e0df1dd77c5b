"""Drafts of a model that proposes a block of tokens, each depending on the one before it
(common_speculative_impl_draft_dflash, is_dspark)."""

from __future__ import annotations

from llama_py.decoding.drafting.drafters._blocks import BlockDrafter


class DraftDspark(BlockDrafter):
    """Block drafter that may know its confidence: a draft ends before a token below p_min."""

    name = "draft-dspark"
