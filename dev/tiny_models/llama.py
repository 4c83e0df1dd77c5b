"""Tiny models of Llama."""

from dev.tiny_models import WIDE, Tiny
from dev.tiny_models._hadamard import ATTENTION, FFN, folded_keys

DENSE = {**WIDE, "attention.layer_norm_rms_epsilon": 1e-5}

# Logits of order one, although the head is the embeddings.
TIED = {"token_embd.weight": 0.2, "*.attn_[qk].*": 2}

TINY = {
    "dense": Tiny(keys=DENSE, without=["*.bias", "*.scale", "output.weight"], gain=TIED),
    "moe": Tiny(
        keys={**DENSE, "expert_count": 5, "expert_used_count": 2},
        gain={"*.attn_[qk].weight": 2, "*.ffn_gate_inp.weight": 2},
    ),
    # The head, the table and some matrices are not folded; there are no signs.
    "hadamard": Tiny(
        keys={
            **DENSE,
            "expert_count": 5,
            "expert_used_count": 2,
            **folded_keys(
                [["attn_k", "ffn_up_exps"], ["attn_output", "ffn_gate_exps", "ffn_down_exps"]],
                block=4,
                head=False,
                table=False,
            ),
        },
        gain={"*.attn_[qk].weight": 2, "*.ffn_gate_inp.weight": 2},
        newest=True,
    ),
    "tied": Tiny(
        keys={
            **DENSE,
            **folded_keys(
                [[*ATTENTION, *FFN]] * 2,
                [64, 96, 128],
                version=2,
                block=32,
                head=False,
                tied_output=True,
            ),
        },
        without=["output.weight"],
        gain=TIED,
        familiar=True,
        newest=True,
    ),
}
