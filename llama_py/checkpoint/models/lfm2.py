"""Checkpoints of LFM2: short convolutions and attention, dense or with experts, also for embeddings
and sound (conversion/lfm2.py)."""

from __future__ import annotations

from typing import Any, ClassVar

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.experts import ExpertsConverter, per_layer
from llama_py.checkpoint.names import LLAMA, pairs
from llama_py.checkpoint.pooling import pooling_keys
from llama_py.checkpoint.safetensors import read_safetensors
from llama_py.checkpoint.shared_keys import EXPERT_SIZE, VOCAB_SIZE, WINDOW
from llama_py.checkpoint.vocabulary import Vocabulary

LAYER = pairs("""
    operator_norm=attn_norm ffn_norm=ffn_norm conv.conv=shortconv.conv
    conv.in_proj=shortconv.in_proj conv.out_proj=shortconv.out_proj self_attn.out_proj=attn_output
    self_attn.q_layernorm=attn_q_norm self_attn.k_layernorm=attn_k_norm feed_forward.w1=ffn_gate
    feed_forward.w2=ffn_down feed_forward.w3=ffn_up
""")
EXPERTS = pairs("""
    feed_forward.gate=ffn_gate_inp feed_forward.expert_bias=exp_probs_b
    feed_forward.experts.w1=ffn_gate_exps feed_forward.experts.w2=ffn_down_exps
    feed_forward.experts.w3=ffn_up_exps
""")
CONVOLUTION = ("shortconv.l_cache", "u32!", ("conv_L_cache",))
# Parts of names in modules of sound
SOUND = (
    "audio", "codebook", "conformer", "depth_embedding", "depthformer", "depth_linear",
)  # fmt: skip


class Lfm2Converter(Converter):
    arch = "lfm2"
    classes: ClassVar[tuple[str, ...]] = ("Lfm2ForCausalLM", "LFM2ForCausalLM")
    names = {
        **LLAMA,
        "model.embedding_norm": "token_embd_norm",
        "dense_2": "dense_2",
        "dense_2_out": "dense_2",
    }
    layers = LAYER

    def select(self, name: str) -> str | None:
        if any(part in name for part in SOUND):
            return None
        return super().select(name.replace("lfm.", "model."))

    def attends(self, kind: Any) -> bool:
        """Return True if a layer of this type attends to tokens."""
        return bool(kind != "conv")

    def keys(self) -> None:
        heads = self.integer("num_key_value_heads")
        types = per_layer(self, "layer_types")
        self.config["num_key_value_heads"] = [heads if self.attends(t) else 0 for t in types]
        super().keys()
        self.more_keys()

    def more_keys(self) -> None:
        epsilon = ("attention.layer_norm_rms_epsilon", "f32!", ("norm_eps",))
        self.copy(VOCAB_SIZE, CONVOLUTION, epsilon)
        n_ff = self.integer("block_ff_dim", "intermediate_size")
        if self.config.get("block_auto_adjust_ff_dim"):
            n_ff = 2 * n_ff // 3
            if (factor := self.find("block_ffn_dim_multiplier")) is not None:
                n_ff = int(factor * n_ff)
            multiple = self.integer("block_multiple_of")
            n_ff = multiple * -(-n_ff // multiple)
        self.out.u32("feed_forward_length", n_ff)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if "conv.conv" in name and array.ndim == 3:  # [n, 1, n_kernel]
            array = array.reshape(array.shape[0], array.shape[-1])
        yield from super().tensors(name, array, layer)


class Lfm2EmbeddingConverter(Lfm2Converter):
    classes: ClassVar[tuple[str, ...]] = ("Lfm2Model", "Lfm2BidirectionalModel")

    def select(self, name: str) -> str | None:
        selected = super().select(name)
        return None if selected is None else f"model.{selected}"

    def extra(self) -> NamedArrays:
        path = self.folder.path / "1_Dense" / "model.safetensors"
        if not path.is_file():
            return
        stored = read_safetensors(path).get("linear.weight")
        if stored is None:
            raise self.refuse((f"linear.weight of {path}",))
        array = LazyArray.from_stored(stored)
        self.out.u32("embedding_length_out", array.shape[0])
        yield "dense_2.weight", array

    def keys(self) -> None:
        super().keys()
        if self.folder.model_name == "Lfm2BidirectionalModel":
            self.out.boolean("attention.causal", False)
        pooling_keys(self.folder, self.out)


class Lfm2MoeConverter(ExpertsConverter, Lfm2Converter):
    arch = "lfm2moe"
    classes: ClassVar[tuple[str, ...]] = ("Lfm2MoeForCausalLM",)
    layers = EXPERTS
    suffixes = {".expert_bias": ".bias"}
    parts = ("w1", "w2", "w3")

    def attends(self, kind: Any) -> bool:
        return bool(kind == "full_attention")

    def more_keys(self) -> None:
        self.copy(EXPERT_SIZE, ("leading_dense_block_count", "u32!", ("num_dense_layers",)))
        self.set_gating("sigmoid")
        self.copy(VOCAB_SIZE, CONVOLUTION)


class Lfm25AudioConverter(Lfm2Converter):
    """The decoder of sound of LFM2.5-Audio."""

    classes: ClassVar[tuple[str, ...]] = ("Lfm25AudioTokenizer",)

    def select(self, name: str) -> str | None:
        if name == "istft.window" or name.startswith("emb.emb"):
            return None
        return super().select(
            name.replace("lin", "dense_2_out") if name.startswith("lin") else name
        )

    def more_keys(self) -> None:
        super().more_keys()
        self.copy(WINDOW, ("embedding_length_out", "u32!", ("output_size",)))

    def vocabulary(self, v: Vocabulary) -> None:
        v.write_none()
