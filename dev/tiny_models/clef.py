"""Tiny models of Clef."""

from dev.tiny_models import Tiny

KEYS = {
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 16,
    "attention.value_length": 16,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.layer_norm_epsilon": 1e-5,
    "rope.freq_base": 1e6,
    "rope.dimension_count": 16,
    "rope.dimension_sections": [3, 3, 2, 0],
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 64,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 4,
    "ssm.group_count": 2,
    "decision.head_count": 4,
}

WITHOUT = ["*.attn_[qkv].bias"]

TINY = {
    # two delta nets, then attention; three questions, of all types
    "routing": Tiny(
        keys={
            **KEYS,
            "block_count": 3,
            "full_attention_interval": 3,
            "decision.routing_block_count": 2,
            "decision.block_count": 1,
        },
        unread={"decision.proj_memory.weight": (64, 32), "dec.blk.0.ffn_up.weight": (32, 40)},
        without=WITHOUT,
        newest=True,
        marks="0222044044001110400444033333040400440000",
    ),
    # the last layer is a delta net; the head is tied
    "joint": Tiny(
        keys={
            **KEYS,
            "block_count": 3,
            "attention.recurrent_layers": [True, False, True],
            "decision.routing_block_count": 0,
            "decision.block_count": 2,
        },
        without=[*WITHOUT, "output.weight"],
        newest=True,
        marks="1114404440000000000000022204400000000444",
    ),
    "alone": Tiny(
        keys={
            **KEYS,
            "block_count": 2,
            "full_attention_interval": 2,
            "decision.routing_block_count": 1,
            "decision.block_count": 0,
        },
        without=WITHOUT,
        newest=True,
        familiar=True,
        marks="0" * 20 + "33300440440000000000",
    ),
}
