"""Tiny models of Qwen3.5, dense."""

from dev.tiny_models import WIDE, Tiny
from dev.tiny_models._hadamard import ATTENTION, DELTA_NET, FFN, folded_keys

# Layers: delta net, attention. 4 value heads share 2 key heads.
DENSE = {
    **WIDE,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.recurrent_layers": [True, False],
    "rope.dimension_count": 16,
    "rope.dimension_sections": [4, 2, 2, 0],
    "rope.freq_base": 1e6,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 128,
    "ssm.state_size": 32,
    "ssm.time_step_rank": 4,
    "ssm.group_count": 2,
}
DRAFTS = {
    **DENSE,
    "block_count": 3,
    "nextn_predict_layers": 1,
    "attention.recurrent_layers": [True, False, False],
}
GAIN = {"*.ssm_dt.bias": 3, "*.ssm_out.weight": 1.5, "*.attn_output.weight": 1.5}

LAYERS = [[*DELTA_NET, *FFN], [*ATTENTION, *FFN]]

TINY = {
    "dense": Tiny(keys=DENSE, gain=GAIN, prompt=72),
    "hadamard": Tiny(
        keys={**DENSE, **folded_keys(LAYERS, [64, 96, 128], gdn_v_grouped=True)},
        gain=GAIN,
        newest=True,
    ),
    "tied": Tiny(
        keys={**DENSE, **folded_keys(LAYERS, version=2, head=False, tied_output=True)},
        without=["output.weight"],
        gain={**GAIN, "token_embd.weight": 0.2},
        familiar=True,
        newest=True,
    ),
    "mtp": Tiny(keys=DRAFTS, without=["*.bias", "*.scale", "*.nextn.embed_tokens.*"], gain=GAIN),
}
