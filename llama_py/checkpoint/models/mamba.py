"""Checkpoints of Mamba, Falcon-Mamba and Mamba 2 (conversion/mamba.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.names import STATE_SPACE, name_layers
from llama_py.checkpoint.shared_keys import Keys
from llama_py.checkpoint.stored import StoredModel
from llama_py.checkpoint.vocabulary import Vocabulary

CONTEXT = 2**20  # default length; Mamba has no limit
MODEL = {
    "backbone.embeddings": "token_embd",
    "backbone.embedding": "token_embd",
    "backbone.norm_f": "output_norm",
    "lm_head": "output",
}
WIDTH, INNER = ("hidden_size", "d_model"), ("intermediate_size", "d_inner")
KERNEL, STATE = ("conv_kernel", "d_conv"), ("state_size", "d_state")
EPSILON, RANK = ("layer_norm_epsilon", "rms_norm_eps"), ("time_step_rank", "dt_rank")
# Values of config.json without which a key has a default.
STATE_KEYS: Keys = (
    ("embedding_length", "u32", WIDTH),
    ("ssm.conv_kernel", "u32", KERNEL),
    ("ssm.inner_size", "u32", INNER),
    ("ssm.state_size", "u32", STATE),
    ("attention.layer_norm_rms_epsilon", "f32", EPSILON),
)
MIXER = {f"mixer.{module}": tensor for module, tensor in STATE_SPACE.items()}
NAMES = {**MODEL, **name_layers("backbone.layers.{}", {**MIXER, "norm": "attn_norm"})}


class MambaConverter(Converter):
    arch = "mamba"
    classes: ClassVar[tuple[str, ...]] = (
        "MambaForCausalLM",
        "MambaLMHeadModel",
        "FalconMambaForCausalLM",
    )
    names = {
        **NAMES,
        "model.embedding": "token_embd",
        "model.norm_f": "output_norm",
        **name_layers("model.layers.{}", {**STATE_SPACE, "norm": "attn_norm"}),
    }

    exports: ClassVar[Mapping[str, str]] = {
        "MambaForCausalLM": "mamba",
        "FalconMambaForCausalLM": "falcon_mamba",
    }
    nfc = True
    embeddings: LazyArray | None = None

    @classmethod
    def choose_class(cls, model: StoredModel) -> str:
        return [*cls.exports][bool(model.get("ssm.dt_b_c_rms"))]

    @classmethod
    def restore_config(cls, model: StoredModel) -> dict[str, Any]:
        return {**restore_state_space(model), RANK[0]: model.get("ssm.time_step_rank")}

    def keys(self) -> None:
        out, n_embd = self.out, self.integer(*WIDTH)
        n_inner = self.find(*INNER) or 2 * n_embd
        if n_inner != 2 * n_embd:
            raise self.refuse(("intermediate_size",), f"twice {n_embd}, got {n_inner}")
        out.u32("context_length", CONTEXT)
        out.u32("embedding_length", n_embd)
        out.u32("feed_forward_length", 0)
        out.u32("attention.head_count", 0)
        out.u32("block_count", self.n_layer)
        out.u32("ssm.conv_kernel", self.find(*KERNEL) or 4)
        out.u32("ssm.inner_size", n_inner)
        out.u32("ssm.state_size", self.find(*STATE) or 16)
        rank = self.find(*RANK)
        out.u32("ssm.time_step_rank", rank if type(rank) is int and rank else -(n_embd // -16))
        epsilon = self.find(*EPSILON) or 1e-5
        out.f32("attention.layer_norm_rms_epsilon", epsilon)
        out.boolean("ssm.dt_b_c_rms", self.find("model_type") == "falcon_mamba")
        out.u32("general.file_type", self.file_type)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        for new_name, new in super().tensors(name, array, layer):
            if new_name == "token_embd.weight":
                self.embeddings = new
            elif new_name == "output.weight" and self._are_embeddings(new):
                continue  # llama.cpp takes the embeddings
            yield new_name, new

    def _are_embeddings(self, output: LazyArray) -> bool:
        known = self.embeddings
        if known is None or known.shape != output.shape:
            return False
        return np.array_equal(known.read(), output.read())

    def vocabulary(self, v: Vocabulary) -> None:
        write_padded(self, v, 8, prefers_json=True)


def restore_state_space(model: StoredModel) -> dict[str, Any]:
    """Return values of config.json that Mamba and Mamba 2 share."""
    found = model.restore(STATE_KEYS, ())
    found["num_hidden_layers"], found["vocab_size"] = model.n_layer, model.n_vocab
    found["use_conv_bias"] = model.has("blk.0.ssm_conv1d.bias")
    found["use_bias"] = model.has("blk.0.ssm_in.bias")
    found["tie_word_embeddings"] = not model.has("output.weight")
    return found


def write_padded(c: Converter, v: Vocabulary, multiple: int, prefers_json: bool) -> None:
    """Write the tokens, and fill them up to a multiple of pad_vocab_size_multiple.

    Raises ModelError without a tokenizer.
    """
    multiple = c.config.get("pad_vocab_size_multiple", multiple)
    v.n_vocab = -(c.integer("vocab_size") // -multiple) * multiple
    has_pieces = v.has("tokenizer.model")
    if has_pieces and not (prefers_json and v.has("tokenizer.json")):
        v.sentencepiece()
    elif v.has("tokenizer.model.v3") and not prefers_json:
        raise ModelError(f"{v.folder.path}: rename tokenizer.model.v3 to tokenizer.model")
    elif v.has("tokenizer.json"):
        v.bpe()
    else:
        raise ModelError(
            f"{v.folder.path}: the model has no tokenizer; if it was trained with the tokenizer "
            "of EleutherAI/gpt-neox-20b, save that tokenizer into the folder"
        )


class Mamba2Converter(Converter):
    arch = "mamba2"
    classes: ClassVar[tuple[str, ...]] = ("Mamba2ForCausalLM",)
    names = NAMES
    exports: ClassVar[Mapping[str, str]] = {"Mamba2ForCausalLM": "mamba2"}
    nfc = True

    @classmethod
    def restore_config(cls, model: StoredModel) -> dict[str, Any]:
        found, n = restore_state_space(model), model.get("ssm.time_step_rank")
        found |= {"num_heads": n, "n_groups": model.get("ssm.group_count", 1)}
        found["head_dim"] = found[INNER[0]] // max(n, 1)
        return {**found, "expand": found[INNER[0]] // max(found[WIDTH[0]], 1)}

    def restore(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        for stored, one in super().restore(name, array, layer):
            is_flat = stored.endswith((".A_log", ".D", ".mixer.norm.weight"))
            one = one.reshape(-1) if is_flat else one
            yield stored.replace(".dt_proj.bias", ".dt_bias"), one

    @property
    def n_inner(self) -> int:
        found = self.find("mamba_d_ssm", "intermediate_size", "d_inner")
        return found or self.expand * self.n_embd

    @property
    def n_embd(self) -> int:
        return self.integer("hidden_size", "d_model", "dim")

    @property
    def expand(self) -> int:
        return self.find("mamba_expand", "expand") or 2

    @property
    def n_group(self) -> int:
        return self.find("n_groups") or 1

    def keys(self) -> None:
        out, n_inner = self.out, self.n_inner
        head_dim = self.find("mamba_d_head", "head_dim") or 64
        self.check_sizes(n_inner, head_dim)
        out.u32("context_length", CONTEXT)
        out.u32("embedding_length", self.n_embd)
        out.u32("feed_forward_length", 0)
        out.u32("attention.head_count", 0)
        out.u32("block_count", self.n_layer)
        out.u32("ssm.conv_kernel", self.find(*self.state_names("conv_kernel", "d_conv")) or 4)
        out.u32("ssm.inner_size", n_inner)
        out.u32("ssm.state_size", self.find(*self.state_names("state_size", "d_state")) or 128)
        out.u32("ssm.time_step_rank", n_inner // head_dim)
        out.u32("ssm.group_count", self.n_group)
        epsilon = self.find("layer_norm_epsilon", "rms_norm_eps") or 1e-5
        out.f32("attention.layer_norm_rms_epsilon", epsilon)
        out.u32("general.file_type", self.file_type)

    def state_names(self, *names: str) -> tuple[str, ...]:
        """Return names in config.json of values of the state space."""
        return names

    def check_sizes(self, n_inner: int, head_dim: int) -> None:
        """Raise ModelError if llama.cpp cannot compute these sizes."""
        if n_inner != self.expand * self.n_embd or n_inner % head_dim:
            wanted = f"expand times hidden_size and whole heads of {head_dim}, got {n_inner}"
            raise self.refuse(("intermediate_size",), wanted)

    def select(self, name: str) -> str | None:
        if name.startswith(("model.backbone", "model.lm_head")):
            name = name.removeprefix("model.")  # Mamba-Codestral
        return super().select(name)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        yield from self.state_space(name, array)

    def state_space(self, name: str, array: LazyArray) -> NamedArrays:
        """Yield a tensor of a layer's state space in llama.cpp's shape."""
        if name.endswith((".A_log", ".D")):
            array = array.reshape(*array.shape, 1)
        elif name.endswith((".mixer.norm.weight", ".mamba.norm.weight")):
            array = array.reshape(self.n_group, self.n_inner // self.n_group)
        yield from Converter.tensors(self, name, array, None)

    def vocabulary(self, v: Vocabulary) -> None:
        write_padded(self, v, 16, prefers_json=False)
