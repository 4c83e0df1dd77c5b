"""Muse Spark, about one billion weights or fewer."""

from dev.compare.bench_model.declared import EXPERTS, WINDOWS, newest

SIZES = newest(
    __name__,
    EXPERTS,
    WINDOWS,
    {
        "post_norm_epsilon": 1e-6,
        "moe_latent_size": 512,
        "expert_weights_norm": True,
        "expert_weights_scale": 2.5,
        "expert_gating_func": 2,
        "logit_scale": 0.5,
        "final_logit_softcapping": 15.0,
        "rope.freq_base_swa": 1e4,
    },
)
