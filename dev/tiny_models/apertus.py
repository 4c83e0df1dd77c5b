"""Tiny models of Apertus."""

from dev.tiny_models import WIDE, Tiny

# Two layers: one activation bends at once, the other one later.
TINY = {
    "dense": Tiny(
        keys={
            **WIDE,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "/xielu.alpha_n": [0.8, 0.3],
            "/xielu.alpha_p": [0.9, 0.4],
            "/xielu.beta": [0.5, 0.7],
            "/xielu.eps": [-1e-6, -0.1],
        },
        without=["*.attn_[qk]_norm.bias"],
    )
}
