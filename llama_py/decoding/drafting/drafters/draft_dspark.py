"""Drafts of a model that guesses a block of tokens at once, each after the one before it
(common_speculative_impl_draft_dflash, is_dspark)."""

from __future__ import annotations

from llama_py.decoding.drafting.drafters._blocks import BlockDrafter


class DraftDspark(BlockDrafter):
    """It may tell how sure it is: a draft ends before a token less sure than p_min."""

    name = "draft-dspark"
