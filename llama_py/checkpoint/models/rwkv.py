"""Checkpoints of RWKV-6 and 7, and models of Qwen2 with their layers (conversion/rwkv.py)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from llama_py.checkpoint.arrays import LazyArray, NamedArrays, stack
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.names import FEED_FORWARD, LAYERS, MODEL, PRE_NORMS, name_layers, pairs
from llama_py.checkpoint.shared_keys import RMS_EPSILON
from llama_py.checkpoint.vocabulary import Vocabulary
from llama_py.checkpoint.vocabulary_files import rwkv_vocabulary

CONTEXT = 2**20  # RWKV has no limit
MIXED = ("w", "k", "v", "r", "g")  # targets of mixing, in the order of files
QWEN_ORDER = (3, 1, 2, 0, 4)  # r k v w g, of the parts of time_mix_w1 and w2
MIX = {
    "time_maa_w1": "time_mix_w1",
    "time_maa_w2": "time_mix_w2",
    **{f"time_maa_{part}": f"time_mix_lerp_{part}" for part in ("x", *MIXED)},
    **pairs("""
        time_decay=time_mix_decay time_decay_w1=time_mix_decay_w1 time_decay_w2=time_mix_decay_w2
        time_faaaa=time_mix_first ln_x=time_mix_ln gate=time_mix_gate
    """),
}
PROJECTIONS = {
    "key": "time_mix_key",
    "value": "time_mix_value",
    "receptance": "time_mix_receptance",
    "output": "time_mix_output",
}
QWEN_PROJECTIONS = {
    "k_proj": "time_mix_key",
    "v_proj": "time_mix_value",
    "q_proj": "time_mix_receptance",
    "o_proj": "time_mix_output",
}
CHANNELS = pairs("""
    feed_forward.time_maa_k=channel_mix_lerp_k feed_forward.time_maa_r=channel_mix_lerp_r
    feed_forward.key=channel_mix_key feed_forward.receptance=channel_mix_receptance
    feed_forward.value=channel_mix_value
""")
TRANSPOSED = ("time_mix_w1.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight")


def nest(path: str, names: dict[str, str]) -> dict[str, str]:
    return {f"{path}.{name}": tensor for name, tensor in names.items()}


class Rwkv6Converter(Converter):
    arch = "rwkv6"
    classes: ClassVar[tuple[str, ...]] = ("Rwkv6ForCausalLM",)
    names = {
        "rwkv.embeddings": "token_embd",
        "rwkv.blocks.0.pre_ln": "token_embd_norm",
        "rwkv.blocks.{}.pre_ln": "token_embd_norm",
        "rwkv.ln_out": "output_norm",
        "head": "output",
        **name_layers(
            "rwkv.blocks.{}",
            {
                "ln1": "attn_norm",
                "ln2": "attn_norm_2",
                **nest("attention", {**MIX, **PROJECTIONS}),
                **CHANNELS,
            },
        ),
    }

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        new_name = self.rename(name)
        if not new_name.endswith((".weight", ".bias")):
            new_name += ".weight"
        if new_name.endswith(TRANSPOSED):
            array = array.swap(0, 1)
        elif new_name.endswith("time_mix_w2.weight"):
            array = array.swap(1, 2)
        elif new_name.endswith("time_mix_decay.weight") or "lerp" in new_name:
            array = array.squeeze()
        every = self.find("rescale_every") or 0
        if every > 0 and new_name.endswith(("time_mix_output.weight", "channel_mix_value.weight")):
            divisor = np.float32(2 ** ((layer or 0) // every))
            array = array.map(lambda x: x / divisor)
        part = new_name.removesuffix(".weight").rpartition("time_mix_lerp_")[2]
        if part not in MIXED or "time_mix_lerp_" not in new_name:
            yield new_name, array
        elif found := self.gatherer.add(f"mix of layer {layer}", MIXED.index(part), array, 5):
            n = found[0].shape[0]
            yield f"blk.{layer}.time_mix_lerp_fused.weight", stack(found).reshape(5, 1, 1, n)

    def keys(self) -> None:
        out, n_embd = self.out, self.integer("hidden_size")
        n_ff = self.find("intermediate_size")
        out.u32("context_length", CONTEXT)
        out.u32("embedding_length", n_embd)
        out.u32("block_count", self.n_layer)
        self.copy(
            ("attention.layer_norm_epsilon", "f32!", ("layer_norm_epsilon",)),
            ("rescale_every_n_layers", "u32!", ("rescale_every",)),
            ("wkv.head_size", "u32!", ("head_size",)),
        )
        out.u32("time_mix_extra_dim", 64 if n_embd == 4096 else 32)
        out.u32("time_decay_extra_dim", 128 if n_embd == 4096 else 64)
        out.u32("feed_forward_length", n_ff or int((n_embd * 3.5) // 32 * 32))
        out.u32("general.file_type", self.file_type)
        out.u32("attention.head_count", 0)

    def vocabulary(self, v: Vocabulary) -> None:
        rwkv_vocabulary(v)


class Rwkv6Qwen2Converter(Rwkv6Converter):
    arch = "rwkv6qwen2"
    classes: ClassVar[tuple[str, ...]] = ("RWKV6Qwen2ForCausalLM",)
    names = MODEL
    layers = {**PRE_NORMS, **nest("self_attn", {**MIX, **QWEN_PROJECTIONS}), **FEED_FORWARD}

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        for new_name, new in super().tensors(name, array, layer):
            yield new_name, new if "time_mix_w" not in new_name else self._reorder(new_name, new)

    def _reorder(self, name: str, array: LazyArray) -> LazyArray:
        parts = array.reshape(5, -1, array.shape[-1])
        found = stack([parts.rows(i, i + 1).reshape(*parts.shape[1:]) for i in QWEN_ORDER])
        return found if "w2" in name else found.reshape(-1, array.shape[-1])

    def keys(self) -> None:
        out, n_embd = self.out, self.integer("hidden_size")
        is_large = n_embd >= 4096
        out.u32("context_length", CONTEXT)
        out.u32("embedding_length", n_embd)
        out.u32("block_count", self.n_layer)
        out.u32("wkv.head_size", n_embd // self.integer("num_attention_heads"))
        shift, decay = (64, 128) if is_large else (32, 64)
        out.u32("time_mix_extra_dim", self.config.get("lora_rank_tokenshift", shift))
        out.u32("time_decay_extra_dim", self.config.get("lora_rank_decay", decay))
        out.u32("feed_forward_length", self.integer("intermediate_size"))
        out.u32("general.file_type", self.file_type)
        self.copy(RMS_EPSILON)
        out.u32("token_shift_count", 1)
        out.u32("attention.head_count_kv", self.integer("num_key_value_heads"))
        out.u32("attention.head_count", 0)

    def vocabulary(self, v: Vocabulary) -> None:
        v.sentencepiece() if v.has("tokenizer.model") else v.bpe()


SMALL = [f"{part}{i}" for part in "wav" for i in "012"] + ["g1", "g2", "k_k", "k_a", "r_k"]
SEVEN = {
    "pre_norm": "token_embd_norm",
    "ln0": "token_embd_norm",
    "ln1": "attn_norm",
    "ln2": "attn_norm_2",
    "attention_norm": "attn_norm",
    **nest(
        "attention",
        {
            **PROJECTIONS,
            **QWEN_PROJECTIONS,
            "r_proj": "time_mix_receptance",
            "ln_x": "time_mix_ln",
            **{part: f"time_mix_{part}" for part in SMALL},
        },
    ),
    "feed_forward.x_k": "channel_mix_lerp_k",
    "feed_forward.key": "channel_mix_key",
    "feed_forward.value": "channel_mix_value",
}
# Parts of names, and their replacements: the names of the oldest checkpoints
OLDEST = (
    ("blocks", "layers"), ("ffn", "feed_forward"), ("self_attn", "attention"),
    ("attn", "attention"), ("time_mixer.", ""), ("feed_forward_norm", "ln2"), ("g_norm", "ln_x"),
)  # fmt: skip
RANKS = (
    ("decay", ("lora_rank_decay", "decay_low_rank_dim"), 0.5, 1.8),
    ("iclr", ("lora_rank_iclr", "a_low_rank_dim"), 0.5, 1.8),
    ("value_residual_mix", ("lora_rank_value_residual_mix", "v_low_rank_dim"), 0.5, 1.3),
    ("gate", ("lora_rank_gate", "gate_low_rank_dim"), 0.8, 0.6),
)


class Rwkv7Converter(Converter):
    arch = "rwkv7"
    classes: ClassVar[tuple[str, ...]] = ("Rwkv7ForCausalLM", "RWKV7ForCausalLM")
    names = {
        **pairs("""
            model.embeddings=token_embd model.embed_tokens=token_embd model.pre_ln=token_embd_norm
            model.norm=output_norm model.ln_out=output_norm lm_head=output head=output
        """),
        **{f"{LAYERS}.{n}": t if "embd" in t else f"blk.{{}}.{t}" for n, t in SEVEN.items()},
    }

    def select(self, name: str) -> str | None:
        for old, new in OLDEST:
            name = name.replace(old, new)
        return super().select(name)

    @property
    def parts(self) -> str:
        """Return the targets of mixing, in the order of files."""
        return "rwkvag" if self.config.get("wkv_has_gate", True) else "rwkva"

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        # in the layout of flash-linear-attention, matrices are not transposed
        is_fla = "_lora.lora" in name
        self.is_fla = getattr(self, "is_fla", False) or is_fla
        for old, new in (
            ("0.weight", "1.weight"),
            ("2.weight", "2.weight"),
            ("2.bias", "0.weight"),
        ):
            name = name.replace(f"_lora.lora.{old}", new)
        path, _, part = name.removesuffix(".weight").rpartition(".attention.x_")
        if path:
            yield from self._mix(layer, part, array)
            return
        new_name = self.rename(name)
        if layer == 0 and "attention.v" in name and "value" not in new_name:
            return  # the first layer has no values of a layer before
        if not new_name.endswith((".weight", ".bias")):
            new_name += ".weight"
        array = array.squeeze()
        if not self.is_fla and new_name.endswith(LOW_RANK):
            array = array.swap(0, 1)
        if "r_k" in new_name:
            array = array.reshape(-1)
        if layer == 0 and "time_mix_a" in new_name:  # llama.cpp requires the names
            yield new_name.replace("time_mix_a", "time_mix_v"), array
        yield new_name, array

    def _mix(self, layer: int | None, part: str, array: LazyArray) -> NamedArrays:
        name = f"blk.{layer}.time_mix_lerp_fused.weight"
        if part == "x":  # all in one
            yield name, array.reshape(len(self.parts), 1, 1, -1)
            return
        number, n = self.parts.index(part), len(self.parts)
        if found := self.gatherer.add(f"mix of layer {layer}", number, array, n):
            yield name, stack(found)

    def keys(self) -> None:
        out, n_embd = self.out, self.integer("hidden_size")
        out.u32("context_length", CONTEXT)
        out.u32("embedding_length", n_embd)
        out.u32("block_count", self.n_layer)
        self.copy(
            ("attention.layer_norm_epsilon", "f32!", ("layer_norm_epsilon", "norm_eps")),
            ("wkv.head_size", "u32!", ("head_size", "head_dim")),
        )
        for key, names, power, factor in RANKS:
            rank = max(1, round(n_embd**power * factor / 32)) * 32
            out.u32(f"attention.{key}_lora_rank", self.find(*names) or rank)
        out.u32("feed_forward_length", self.find("intermediate_size") or 4 * n_embd)
        out.u32("general.file_type", self.file_type)
        out.u32("attention.head_count", 0)

    def vocabulary(self, v: Vocabulary) -> None:
        rwkv_vocabulary(v)


LOW_RANK = tuple(f"time_mix_{part}{i}.weight" for part in "wavg" for i in "12")


class Arwkv7Converter(Rwkv7Converter):
    arch = "arwkv7"
    classes: ClassVar[tuple[str, ...]] = ("RwkvHybridForCausalLM",)
    layers = {**FEED_FORWARD, **PRE_NORMS}

    def keys(self) -> None:
        out, has_gate = self.out, bool(self.find("wkv_has_gate"))
        if self.find("wkv_version") != 7:
            raise self.refuse(("wkv_version",), "7")
        out.u32("context_length", CONTEXT)
        out.u32("embedding_length", self.integer("hidden_size"))
        out.u32("block_count", self.n_layer)
        self.copy(RMS_EPSILON, ("wkv.head_size", "u32!", ("head_size",)))
        for (key, *_), rank in zip(RANKS, (64, 64, 32, 128 if has_gate else 0), strict=True):
            out.u32(f"attention.{key}_lora_rank", rank)
        out.u32("feed_forward_length", self.integer("intermediate_size"))
        out.u32("general.file_type", self.file_type)
        out.u32("token_shift_count", 1)
        out.u32("attention.head_count", 0)

    def vocabulary(self, v: Vocabulary) -> None:
        v.sentencepiece() if v.has("tokenizer.model") else v.bpe()
