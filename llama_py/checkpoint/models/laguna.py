"""Checkpoints of Laguna (conversion/laguna.py)."""

from __future__ import annotations

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.experts import ExpertsConverter, count_dense
from llama_py.checkpoint.models.qwen2moe import EXPERT_KEYS
from llama_py.checkpoint.names import EXPERTS, HEAD_NORMS, SHARED_EXPERT
from llama_py.checkpoint.sentencepiece import CONTROL
from llama_py.checkpoint.shared_keys import VOCAB_SIZE
from llama_py.checkpoint.special_tokens import SpecialTokens
from llama_py.checkpoint.vocabulary import Vocabulary

PER_HEAD, PER_ELEMENT = "per_head", "per_element"
END_OF_TURN = "</assistant>"


class LagunaConverter(ExpertsConverter):
    arch = "laguna"
    classes = ("LagunaForCausalLM",)
    layers = {
        **HEAD_NORMS,
        **EXPERTS,
        **SHARED_EXPERT,
        "self_attn.g_proj": "attn_gate",
        "mlp.experts.e_score_correction": "exp_probs_b",
    }
    parts = ("gate_proj", "up_proj", "down_proj")
    needed = (
        "moe_intermediate_size", "shared_expert_intermediate_size", "moe_routed_scaling_factor",
        "mlp_layer_types", "head_dim",
    )  # fmt: skip

    def keys(self) -> None:
        super().keys()
        out = self.out
        self.gates()
        self.copy(VOCAB_SIZE)
        out.array("attention.head_count", self.heads())
        if window := self.find("sliding_window"):
            out.u32("attention.sliding_window", window)
        self.copy(*EXPERT_KEYS)
        out.boolean("expert_weights_norm", True)
        out.f32("expert_weights_scale", self.find("moe_routed_scaling_factor"))
        self.set_gating("sigmoid")
        out.u32("leading_dense_block_count", count_dense(self.find("mlp_layer_types")))
        for key, rope in (
            ("rope.dimension_count", self.full_rope),
            ("rope.dimension_count_swa", self.rope.get("sliding_attention")),
        ):
            if rope is not None:
                part = rope.get("partial_rotary_factor", 1.0)
                out.u32(key, int(self.head_dim * part))

    def heads(self) -> list[int]:
        """Return the heads of each layer."""
        n_layer = self.n_layer
        found = self.find("num_attention_heads_per_layer")
        each = found or [self.integer("num_attention_heads")] * n_layer
        if not isinstance(each, list) or len(each) != n_layer:
            raise ModelError(
                f"num_attention_heads_per_layer must have {n_layer} entries, got {str(each)[:50]}"
            )
        return each

    def gates(self) -> list[str]:
        """Return for each layer if its attention has a gate per head or per element.

        Raises ModelError if `gating`, which other programs read, differs.
        """
        gating, types = self.find("gating"), self.find("gating_types")
        names = types or [PER_HEAD if gating is True else gating] * self.n_layer
        found = [str(name).replace("-", "_") for name in names]
        if len(found) != self.n_layer or not {*found} <= {PER_HEAD, PER_ELEMENT}:
            raise ModelError(
                f"gating must be per-head or per-element, and gating_types so for each of "
                f"{self.n_layer} layers, got {gating} and {str(types)[:80]}"
            )
        if PER_ELEMENT in found and str(gating).replace("-", "_") != PER_ELEMENT:
            raise ModelError(f'gating must be "per-element", like gating_types, got {gating}')
        return found

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if layer is not None and name.endswith("self_attn.g_proj.weight"):
            each = self.head_dim if self.gates()[layer] == PER_ELEMENT else 1
            if array.shape[0] != self.heads()[layer] * each:
                raise ModelError(
                    f"{name} has {array.shape[0]} rows, which contradicts gating: "
                    f"{self.gates()[layer]} needs {self.heads()[layer] * each}"
                )
        yield from super().tensors(name, array, layer)

    def vocabulary(self, v: Vocabulary) -> None:
        tokens, types, pre = v.tokens_of_json()
        pairs = zip(tokens, types, strict=True)
        types = [CONTROL if text == END_OF_TURN else kind for text, kind in pairs]
        v.write("gpt2", pre, tokens, types)
        SpecialTokens(v.folder, with_merges=True).write(self.out)
        if (template := v.folder.text("chat_template.jinja")) is not None:
            self.out.text("tokenizer.chat_template", template)
        ids, bos = self.find("eos_token_id"), self.find("bos_token_id")
        if isinstance(ids, list) and (other := [id for id in ids if id != bos]):
            self.out.u32("tokenizer.ggml.eot_token_id", other[0])
