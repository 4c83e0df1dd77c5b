"""Checkpoints of GPT-2 and models of its names: StarCoder, CodeShell, Refact, Jais
(conversion/gpt2.py, starcoder.py, codeshell.py, refact.py, jais.py)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import Array, LazyArray, NamedArrays, concat
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.models.plm import UNGATED
from llama_py.checkpoint.names import name_layers, pairs
from llama_py.checkpoint.special_tokens import SpecialTokens
from llama_py.checkpoint.vocabulary import Vocabulary

GPT2 = pairs("""
    wte=token_embd wpe=position_embd ln_f=output_norm lm_head=output
    h.{}: ln_1=attn_norm attn.c_attn=attn_qkv attn.c_proj=attn_output ln_2=ffn_norm
        mlp.c_fc=ffn_up mlp.c_fc2=ffn_gate mlp.c_proj=ffn_down
""")
# Matrices that GPT-2 and Jais store transposed
TRANSPOSED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight", ".c_fc2.weight")
MASKS = (".attn.bias", ".attn.masked_bias")  # of attention, not parameters
REFACT_MULTIPLE = 256  # of rows of its feed-forward matrices


class StarCoderConverter(Converter):
    arch = "starcoder"
    classes = ("GPTBigCodeForCausalLM",)
    names = GPT2
    prefixes = ("transformer.",)
    n_head_kv = 1

    def select(self, name: str) -> str | None:
        return None if name.endswith(MASKS) else super().select(name)

    def keys(self) -> None:
        n_embd = self.integer("n_embd")
        self.out.set_all({
            "context_length": self.integer("n_positions"),
            "embedding_length": n_embd,
            "feed_forward_length": 4 * n_embd,
            "block_count": self.n_layer,
            "attention.head_count": self.integer("n_head"),
            "attention.head_count_kv": self.n_head_kv,
            "attention.layer_norm_epsilon": self.find("layer_norm_epsilon"),
            "general.file_type": self.file_type,
        })  # fmt: skip


class CodeShellConverter(StarCoderConverter):
    arch = "codeshell"
    classes = ("CodeShellForCausalLM",)

    def keys(self) -> None:
        self.n_head_kv = self.integer("num_query_groups")
        super().keys()
        self.out.f32("rope.freq_base", 10000.0)
        self.out.text("rope.scaling.type", "linear")
        self.out.f32("rope.scaling.factor", 1.0)


class Gpt2Converter(StarCoderConverter):
    arch = "gpt2"
    classes = ("GPT2LMHeadModel",)
    defaults = {"layer_norm_epsilon": 1e-5}

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        turned = array.transpose() if name.endswith(TRANSPOSED) else array
        yield from super().tensors(name, turned, layer)

    def keys(self) -> None:
        n_embd = self.integer("n_embd")
        self.out.set_all({
            "block_count": self.n_layer,
            "context_length": self.integer("n_ctx", "n_positions"),
            "embedding_length": n_embd,
            "feed_forward_length": self.find("n_inner") or 4 * n_embd,
            "attention.head_count": self.integer("n_head"),
            "attention.layer_norm_epsilon": self.find("layer_norm_epsilon"),
            "general.file_type": self.file_type,
        })  # fmt: skip


class JaisConverter(Gpt2Converter):
    """The scales of embeddings and logits become parts of the matrices."""

    arch = "jais"
    classes = ("JAISLMHeadModel",)
    alibi_bias = 8

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name.endswith("relative_pe.slopes"):
            n_head = 2 ** math.floor(math.log2(self.integer("n_head")))
            slope = float(array.read().reshape(-1)[0])
            if not 0 < slope < 1:
                raise ModelError(f"the first slope of ALiBi must be between 0 and 1, got {slope}")
            self.alibi_bias = -round(math.log2(slope) * n_head)
            return
        if name == "wte.weight":
            array = array.map(make_scaler(self.find("mup_embeddings_scale", "embeddings_scale")))
        elif name == "lm_head.weight":
            alpha, width = self.find("mup_output_alpha"), self.find("mup_width_scale")
            scale = alpha * width if alpha is not None else self.find("width_scale")
            array = array.map(make_scaler(scale))
        yield from super().tensors(name, array, layer)

    def check_complete(self) -> None:
        self.out.f32("attention.max_alibi_bias", self.alibi_bias)
        for key, value in (("activation_function", "swiglu"), ("position_embedding_type", "alibi")):
            if self.find(key) != value:
                raise self.refuse((key,), value)


def make_scaler(scale: float) -> Callable[[Array], Array]:
    """Return a function that multiplies in float32, torch's way with float16."""
    return lambda x: x.astype(np.float32) * np.float32(scale)


class RefactConverter(Converter):
    arch = "refact"
    classes = ("GPTRefactForCausalLM",)
    names = {**GPT2, **name_layers("h.{}", {"attn.q": "attn_q", "mlp.c_proj": "ffn_down"})}
    prefixes = ("transformer.",)

    @property
    def n_ff(self) -> int:
        n = 8 * self.integer("n_embd") // 3
        return -(-n // REFACT_MULTIPLE) * REFACT_MULTIPLE

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name.endswith(".attn.kv.weight"):  # one head for all queries
            n = self.integer("n_embd") // self.integer("n_head")
            yield f"blk.{layer}.attn_k.weight", array.rows(0, n)
            yield f"blk.{layer}.attn_v.weight", array.rows(n)
        elif name.endswith(".mlp.gate_up_proj.weight"):
            yield f"blk.{layer}.ffn_gate.weight", array.rows(0, self.n_ff)
            yield f"blk.{layer}.ffn_up.weight", array.rows(self.n_ff)
        else:
            yield from super().tensors(name, array, layer)

    def keys(self) -> None:
        self.out.set_all({
            "context_length": self.integer("n_positions"),
            "embedding_length": self.integer("n_embd"),
            "feed_forward_length": self.n_ff,
            "block_count": self.n_layer,
            "attention.head_count": self.integer("n_head"),
            "attention.head_count_kv": 1,
            "attention.layer_norm_rms_epsilon": self.find("layer_norm_epsilon"),
            "general.file_type": self.file_type,
        })  # fmt: skip

    def vocabulary(self, v: Vocabulary) -> None:
        super().vocabulary(v)
        SpecialTokens(self.folder, roles=("eot",)).write(self.out)


class RuGpt3XlConverter(Converter):
    arch = "gpt2"
    classes = ("RuGPT3XLForCausalLM",)
    names = {**UNGATED, "model.embed_positions": "position_embd"}

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        module, _, suffix = name.rpartition(".")
        path, _, part = module.rpartition(".self_attn.")
        if part not in ("q_proj", "k_proj", "v_proj"):
            yield from super().tensors(name, array, layer)
            return
        found = self.gatherer.add(f"{path}.self_attn ({suffix})", "qkv".index(part[0]), array, 3)
        if found is not None:
            yield f"blk.{layer}.attn_qkv.{suffix}", concat(found)
