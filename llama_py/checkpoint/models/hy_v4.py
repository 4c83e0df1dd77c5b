"""Checkpoints of Hy4: latent attention with gates and sinks, hyper-connections
(conversion/hy_v4.py)."""

from __future__ import annotations

import re

from ggml_py.types import F32, GGMLType
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.experts import count_dense, per_layer
from llama_py.checkpoint.models.deepseek import DeepseekV2Converter
from llama_py.checkpoint.names import INDEXER
from llama_py.checkpoint.shared_keys import INDEXER_KEYS

KINDS = ("fn", "base", "scale")
CONNECTIONS = {
    f"hc_{part}_layer.hc_pre.hc_{kind}": f"hc_{tensor}_{kind}"
    for part, tensor in (("attn", "attn"), ("mlp", "ffn"))
    for kind in KINDS
}
PLAIN = re.compile(
    r".*\.(learnable_sink_param|hc_head_(fn|base|scale)|hc_(attn|mlp)_layer\.hc_pre\.hc_\w+)"
)
EXACT = (
    "hc_attn_fn.weight", "hc_ffn_fn.weight", "output_hc_fn.weight", "indexer.k_norm.bias",
)  # fmt: skip
SPARSE = ("sparse_attention", "deepseek_sparse_attention")


class HyV4Converter(DeepseekV2Converter):
    arch = "hy_v4"
    classes = ("HYV4ForCausalLM",)
    names = {
        **DeepseekV2Converter.names,
        **{f"model.hc_head.hc_head_{kind}": f"output_hc_{kind}" for kind in KINDS},
    }
    layers = {
        **INDEXER,
        **CONNECTIONS,
        "self_attn.learnable_sink_param": "attn_sinks",
        "self_attn.linear_gate": "attn_gate",
    }
    skipped = ("model.mtp_layers.",)

    def kv_sizes(self, layer: int | None) -> tuple[int, int, int]:
        return self.integer("num_attention_heads"), *super().kv_sizes(layer)[1:]

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        yield from super().tensors(
            f"{name}.weight" if PLAIN.fullmatch(name) else name, array, layer
        )

    def forced_type(self, name: str, array: LazyArray) -> GGMLType | None:
        exact_output = name == "output.weight" and self.find("enable_lm_head_fp32")
        return F32 if exact_output or name.endswith(EXACT) else None

    def keys(self) -> None:
        if self.find("n_group") == self.find("topk_group") == 1:
            self.config.pop("n_group")
            self.config.pop("topk_group")
        self.config["first_k_dense_replace"] = self._n_dense()
        super().keys()
        self.set_gating("sigmoid")
        limit = float(self.find("swiglu_limit") or 0.0)
        if limit > 0:
            self.out.array("swiglu_clamp_exp", [limit] * self.n_layer)
        self.copy(
            ("hyper_connection.count", "u32!", ("hc_mult",)),
            ("hyper_connection.epsilon", "f32!", ("hc_eps",)),
            ("hyper_connection.magnitude", "f32!", ("hc_magnitude",)),
        )
        if owners := self._indexers():
            self.copy(*INDEXER_KEYS)
            self.out.array("attention.indexer.types", owners)

    def _n_dense(self) -> int:
        """Return the number of layers without experts, the first ones."""
        given, types = self.find("first_k_dense_replace"), self.find("mlp_layer_types")
        if isinstance(types, list):
            n = count_dense(types)
            if "dense" in types[n:] or given not in (None, n):
                raise self.refuse(("mlp_layer_types",), "dense for the first layers only")
            return n
        return self.integer("first_k_dense_replace")

    def _indexers(self) -> list[bool]:
        """Return for each layer if it has its own indexer; empty for a model without indexers."""
        if self.find("indexer_types") is not None:
            types = per_layer(self, "indexer_types")
            if types[:1] == ["shared"] or {*types} - {"full", "shared"}:
                raise self.refuse(("indexer_types",), "full or shared, the first one full")
            return [kind == "full" for kind in types]
        listed = self.find("layer_types") or []
        if not any(kind in SPARSE for kind in listed):
            return []
        return [kind in SPARSE for kind in per_layer(self, "layer_types")]
