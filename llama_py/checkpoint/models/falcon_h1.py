"""Checkpoints of Falcon-H1: attention and Mamba 2 side by side (conversion/falcon_h1.py)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from llama_py.checkpoint.arrays import Array, LazyArray, NamedArrays
from llama_py.checkpoint.models.mamba import Mamba2Converter
from llama_py.checkpoint.names import LLAMA, MAMBA
from llama_py.checkpoint.shared_keys import VOCAB_SIZE
from llama_py.checkpoint.vocabulary import Vocabulary

FEED_FORWARD = {f"feed_forward.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")}
# Parts of names, and factors of the model in config.json, in the order of search
FACTORS = (
    ("down_proj", ("mlp_multipliers:1",)),
    ("gate_proj", ("mlp_multipliers:0",)),
    ("k_proj", ("key_multiplier", "attention_in_multiplier")),
    ("q_proj", ("attention_in_multiplier",)),
    ("v_proj", ("attention_in_multiplier",)),
    ("o_proj", ("attention_out_multiplier",)),
    ("out_proj", ("ssm_out_multiplier",)),
    ("in_proj", ("ssm_in_multiplier",)),
    ("lm_head", ("lm_head_multiplier",)),
    ("embed_tokens", ("embedding_multiplier",)),
)


class FalconH1Converter(Mamba2Converter):
    """The model's factors of activations are multiplied into its weights."""

    arch = "falcon-h1"
    classes = ("FalconH1ForCausalLM",)
    names = {**LLAMA, "model.final_layernorm": "output_norm"}
    layers = {**MAMBA, **FEED_FORWARD, "pre_ff_layernorm.weight": "ffn_norm"}

    def state_names(self, *names: str) -> tuple[str, ...]:
        return (*names, *(f"mamba_{name}" for name in names))

    @property
    def n_inner(self) -> int:
        return self.integer("mamba_d_ssm")

    @property
    def n_group(self) -> int:
        return self.integer("n_groups", "mamba_n_groups")

    def check_sizes(self, n_inner: int, head_dim: int) -> None:
        head_dim = self.integer("d_head", "mamba_d_head")
        if n_inner % head_dim or self.find("hidden_act") not in (None, "silu"):
            raise self.refuse(("mamba_d_ssm", "hidden_act"), f"heads of {head_dim}, and silu")

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        factors = next((found for part, found in FACTORS if part in name), ())
        for new_name, new in super().tensors(name, array, layer):
            for factor in map(self._factor, factors):
                new = new.map(partial(np.multiply, np.float32(factor)))
            yield new_name, self._sections(new) if ".in_proj" in name else new

    def _factor(self, name: str) -> float:
        name, _, index = name.partition(":")
        found: Any = self.find(name)
        if index and isinstance(found, list) and len(found) > int(index):
            found = found[int(index)]
        if not isinstance(found, int | float):
            raise self.refuse((name,), None if found is None else "a number")
        return found

    def _sections(self, array: LazyArray) -> LazyArray:
        """Multiply the rows of gates, inputs, B, C and time steps by their own factors."""
        n, n_state = self.n_inner, self.n_group * self.integer("mamba_d_state")
        sizes = (n, n, n_state, n_state, array.shape[0] - 2 * n - 2 * n_state)
        factors = [np.float32(self._factor(f"ssm_multipliers:{i}")) for i in range(5)]

        def multiply(x: Array) -> Array:
            each = np.repeat(np.array(factors, np.float32), sizes)
            product: Array = x * each.reshape(-1, *[1] * (x.ndim - 1))
            return product

        return array.map(multiply)

    def keys(self) -> None:
        super().keys()
        self.copy(VOCAB_SIZE)
        self.out.u32("context_length", self.config.get("max_position_embeddings", 0))
        self.copy(
            ("feed_forward_length", "u32!", ("intermediate_size",)),
            ("attention.head_count", "u32!", ("num_attention_heads",)),
            ("attention.head_count_kv", "u32!", ("num_key_value_heads",)),
            ("attention.key_length", "u32!", ("head_dim",)),
            ("attention.value_length", "u32!", ("head_dim",)),
        )
        if (theta := self.rope.get("rope_theta")) is None:
            raise self.refuse(("rope_theta",))
        self.out.f32("rope.freq_base", theta)

    def vocabulary(self, v: Vocabulary) -> None:
        v.bpe()
