"""Checkpoints of models that differ little from Llama."""

from __future__ import annotations

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.models.llama import LlamaConverter
from llama_py.checkpoint.names import HEAD_NORMS, LLAMA, MODEL, PRE_NORMS
from llama_py.checkpoint.pooling import pooling_keys
from llama_py.checkpoint.vocabulary import Vocabulary

BARE = ("layers.", "embed_tokens.", "norm.")  # names without `model.`
XIELU = {".act_fn.alpha_n", ".act_fn.alpha_p", ".act_fn.beta", ".act_fn.eps"}


class ArceeConverter(LlamaConverter):
    arch = "arcee"
    classes = ("ArceeForCausalLM",)

    def keys(self) -> None:
        super().keys()
        pooling_keys(self.folder, self.out)


class SmolLM3Converter(LlamaConverter):
    arch = "smollm3"
    classes = ("SmolLM3ForCausalLM",)


class LlamaEmbedConverter(LlamaConverter):
    arch = "llama-embed"
    classes = ("LlamaBidirectionalModel",)

    def select(self, name: str) -> str | None:
        selected = super().select(name)
        return f"model.{selected}" if selected and selected.startswith(BARE) else selected


class NanbeigeConverter(LlamaConverter):
    arch = "nanbeige"
    classes = ("NanbeigeForCausalLM",)

    def keys(self) -> None:
        super().keys()
        self.out.u32("num_loops", max(int(self.find("num_loops") or 1), 1))
        self.out.boolean("skip_loop_final_norm", self.find("skip_loop_final_norm"))


class ApertusConverter(LlamaConverter):
    """The feed-forward network has an activation function with numbers of each layer (xIELU)."""

    arch = "apertus"
    classes = ("ApertusForCausalLM",)
    names = LLAMA
    layers = {**HEAD_NORMS, "attention_layernorm": "attn_norm", "feedforward_layernorm": "ffn_norm"}
    permutes = False
    _found: dict[str, dict[int, float]]

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        kind = next((kind for kind in XIELU if name.endswith(kind)), None)
        if kind is None or layer is None:
            yield from super().tensors(name, array, layer)
            return
        self.__dict__.setdefault("_found", {})
        found = self._found.setdefault(kind, {})
        found[layer] = float(array.read().item())
        if len(found) == self.n_layer:
            self.out.array(f"xielu.{kind.split('.')[-1]}", [found[i] for i in sorted(found)])


class JanusConverter(LlamaConverter):
    classes = ("JanusForConditionalGeneration",)
    skipped = ("model.aligner.", "model.vqmodel.", "model.generation_")


class Sarashina2VisionConverter(LlamaConverter):
    classes = ("Sarashina2VisionForCausalLM",)

    def select(self, name: str) -> str | None:
        return None if name.startswith("norm.") else super().select(name.removeprefix("llm."))


class PanguConverter(LlamaConverter):
    arch = "pangu-embedded"
    classes = ("PanguEmbeddedForCausalLM",)
    permutes = False
    drops_tied_output = True

    def keys(self) -> None:
        super().keys()
        if self.find("head_dim") is None:
            self.out.u32("attention.key_length", self.head_dim)
            self.out.u32("attention.value_length", self.head_dim)

    def extra(self) -> NamedArrays:
        yield from ()

    def vocabulary(self, v: Vocabulary) -> None:
        v.sentencepiece()
        v.write_space_prefix()


class CogVLMConverter(LlamaConverter):
    """Each layer has separate matrices for images. llama.cpp's converter does not write them,
    so llama.cpp cannot load its file."""

    arch = "cogvlm"
    classes = ("CogVLMForCausalLM",)
    names = MODEL
    layers = {
        **PRE_NORMS,
        "self_attn.language_expert_query_key_value": "attn_qkv",
        "self_attn.language_expert_dense": "attn_output",
        "self_attn.vision_expert_query_key_value": "vis_attn_qkv",
        "self_attn.vision_expert_dense": "vis_attn_output",
        "mlp.language_mlp.gate_proj": "ffn_gate",
        "mlp.language_mlp.up_proj": "ffn_up",
        "mlp.language_mlp.down_proj": "ffn_down",
        "mlp.vision_mlp.gate_proj": "vis_gate",
        "mlp.vision_mlp.up_proj": "vis_up",
        "mlp.vision_mlp.down_proj": "vis_down",
    }

    def select(self, name: str) -> str | None:
        return name if name.startswith("model.layers.") else super().select(name)
