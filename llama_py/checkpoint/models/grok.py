"""Checkpoints of Grok (conversion/grok.py)."""

from __future__ import annotations

from functools import cached_property

from llama_py.checkpoint.experts import ExpertsConverter
from llama_py.checkpoint.merge import ExpertMerger
from llama_py.checkpoint.models.llama import LlamaConverter
from llama_py.checkpoint.names import pairs

CAP = 30.0


class GrokConverter(ExpertsConverter):
    arch = "grok"
    classes = ("GrokForCausalLM", "Grok1ForCausalLM")
    layers = {
        "pre_attn_norm": "attn_norm",
        "post_attn_norm": "attn_output_norm",
        "pre_moe_norm": "ffn_norm",
        "post_moe_norm": "post_ffw_norm",
    }
    names = {
        **LlamaConverter.names,
        **pairs("""
            transformer.in_out_embed=token_embd transformer.rms_norm=output_norm
            transformer.decoder_layer.{}: rms_norm=attn_norm rms_norm_1=attn_output_norm
                rms_norm_2=ffn_norm rms_norm_3=layer_output_norm multi_head_attention.query=attn_q
                multi_head_attention.key=attn_k multi_head_attention.value=attn_v
                multi_head_attention.linear=attn_output router=ffn_gate_inp moe.linear=ffn_gate_exps
                moe.linear_1=ffn_down_exps moe.linear_v=ffn_up_exps
        """),
    }  # fmt: skip
    parts = ("w1", "w2", "w3")
    needed = ("embedding_multiplier_scale", "output_multiplier_scale")
    tokenizer = "either"

    def keys(self) -> None:
        super().keys()
        out, find = self.out, self.find
        out.f32("attn_logit_softcapping", self.config.get("attn_logit_softcapping", CAP))
        out.f32("router_logit_softcapping", self.config.get("router_logit_softcapping", CAP))
        if cap := find("final_logit_softcapping"):
            out.f32("final_logit_softcapping", cap)
        self.copy(("expert_feed_forward_length", "u32", ("moe_intermediate_size",)))
        if find("rope_type") in ("yarn", "original"):  # "original" means YaRN in Grok 2
            out.text("rope.scaling.type", "yarn")
            self.copy(*YARN_KEYS)
        if n := find("attn_temperature_len"):
            out.u32("attention.temperature_length", n)
        scale = self.config.get("attn_output_multiplier", self.head_dim**-0.5)
        out.f32("attention.output_scale", scale)
        out.f32("embedding_scale", find("embedding_multiplier_scale"))
        out.f32("logit_scale", find("output_multiplier_scale"))

    @cached_property
    def mergers(self) -> list[ExpertMerger]:
        parts = ("linear", "linear_1", "linear_v")  # of Grok 1
        return [self.experts, ExpertMerger(self.experts.n_experts, parts, "moe")]


YARN_KEYS = (
    ("rope.scaling.factor", "f32", ("scaling_factor",)),
    ("rope.scaling.original_context_length", "u32", ("original_max_position_embeddings",)),
    ("rope.scaling.yarn_ext_factor", "f32", ("extrapolation_factor",)),
    ("rope.scaling.yarn_attn_factor", "f32", ("attn_factor",)),
    ("rope.scaling.yarn_beta_fast", "f32", ("beta_fast",)),
    ("rope.scaling.yarn_beta_slow", "f32", ("beta_slow",)),
)
