"""Options of `Llama`, and the corresponding options of models and contexts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

from ggml_py.errors import ModelError
from ggml_py.types import TYPES
from llama_py.params import ATTENTION, POOLING, SPLIT_MODES
from llama_py.params.near import did_you_mean
from llama_py.params.option import Params, option
from llama_py.params.rules import ValueRule, integers

if TYPE_CHECKING:
    from typing_extensions import Self

_ENUM = ValueRule("a number or a name", lambda value: isinstance(value, (int, str)))
_ROPE = ("none", "linear", "yarn")
_SPLIT = ("none", "layer", "row")
_FROM_MODEL = {"yarn_attn_factor": 1.0, "yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0}


class NamedOptions(Params):
    """Base class of options. Errors about unknown names list all known names.

    function  name of the function that takes the options; default: from the name of the class
    """

    function: ClassVar[str] = ""

    def __new__(cls, **given: Any) -> Self:
        """Raise TypeError for an unknown name, with all known names."""
        known = [f.name for f in fields(cls)]
        function = cls.function or cls.__name__.removesuffix("Options")
        for name in given:
            if name not in known:
                meant = did_you_mean(name, known)
                raise TypeError(
                    f"{function} has no option {name!r}; {f'{meant}; ' if meant else ''}known: "
                    f"{', '.join(known)}"
                )
        return super().__new__(cls, **given)


class LlamaOptions(NamedOptions):
    """Options of `Llama` after model_path, with llama-cpp-python's names and defaults."""

    n_gpu_layers: int = option(
        0, "", "number of layers on GPUs (-1: all); 0: the CPU, or the device of `device`"
    )
    device: Any = option(
        None, "", "device or devices of llama-py (None: cpu, or auto with n_gpu_layers)"
    )
    split_mode: int | str = option(1, "", "LLAMA_SPLIT_MODE_*, or a name of llama-py", check=_ENUM)
    main_gpu: int = option(0, "", "index of the only GPU, with LLAMA_SPLIT_MODE_NONE")
    tensor_split: Sequence[float] | None = option(None, "", "proportions of the model per device")
    vocab_only: bool = option(False, "", "load the vocabulary and metadata only")
    use_mmap: bool = option(True, "", "map the model file into memory")
    use_mlock: bool = option(False, "", "lock the weights in RAM")
    kv_overrides: Mapping[str, bool | int | float | str] | None = option(
        None, "", "metadata values that replace the file's values"
    )
    seed: int | None = option(
        None, "", "seed of completions without their own seed", check=integers(-1, 2**32 - 1)
    )
    n_ctx: int = option(512, "", "context size in tokens (0: from the model)", check=integers(0))
    n_batch: int = option(512, "", "maximum tokens per logical batch", check=integers(1))
    n_ubatch: int = option(512, "", "maximum tokens per physical batch", check=integers(1))
    n_threads: int | None = option(None, "", "number of threads (None: one per core)")
    n_threads_batch: int | None = option(None, "", "number of threads for prompts")
    rope_scaling_type: int | str | None = option(-1, "", "LLAMA_ROPE_SCALING_TYPE_*", check=_ENUM)
    pooling_type: int | str = option(-1, "", "LLAMA_POOLING_TYPE_*", check=_ENUM)
    attention_type: int | str = option(-1, "", "LLAMA_ATTENTION_TYPE_*", check=_ENUM)
    rope_freq_base: float = option(0.0, "", "RoPE base frequency (0: from the model)")
    rope_freq_scale: float = option(0.0, "", "RoPE frequency scaling factor (0: from the model)")
    yarn_ext_factor: float = option(-1.0, "", "YaRN weight of extrapolation (-1: from the model)")
    yarn_attn_factor: float = option(1.0, "", "YaRN magnitude factor (1: from the model)")
    yarn_beta_fast: float = option(32.0, "", "YaRN high rotations (32: from the model)")
    yarn_beta_slow: float = option(1.0, "", "YaRN low rotations (1: from the model)")
    yarn_orig_ctx: int = option(0, "", "YaRN training context (0: from the model)")
    logits_all: bool = option(
        False, "", "store the logits of all tokens in `scores`, also of the prompt"
    )
    embedding: bool = option(False, "", "permit `embed` and `create_embedding`")
    offload_kqv: bool = option(True, "", "keep the KV cache on the layer's device")
    flash_attn: bool = option(False, "", "flash attention (False: if the device supports it)")
    op_offload: bool | None = option(None, "", "no effect: ops run on the devices of their weights")
    swa_full: bool | None = option(None, "", "full-size KV cache for sliding-window layers")
    no_perf: bool = option(False, "", "no effect: timings are always measured")
    last_n_tokens_size: int = option(
        64, "", "number of last tokens that penalties apply to", check=integers(0)
    )
    lora_base: str | None = option(None, "", "no effect, like in llama-cpp-python")
    lora_scale: float = option(1.0, "", "scale of the LoRA adapter")
    lora_path: str | None = option(None, "", "GGUF file of a LoRA adapter")
    numa: bool | int = option(False, "", "no effect: the system places memory", check=_ENUM)
    chat_format: str | None = option(
        None, "", "name of a chat template, or of a registered handler (None: from the model)"
    )
    chat_handler: Any = option(None, "", "function that handles chat completions")
    draft_model: Any = option(
        None, "", "LlamaPromptLookupDecoding, or the path of a draft model's GGUF file"
    )
    tokenizer: Any = option(None, "", "tokenizer that replaces the model's for prompts")
    type_k: int | str | None = option(None, "", "type of the K cache: GGML_TYPE_* or a name")
    type_v: int | str | None = option(None, "", "type of the V cache: GGML_TYPE_* or a name")
    spm_infill: bool = option(False, "", "infill in the order suffix, prefix, middle")
    verbose: bool = option(True, "", "show progress of loading and compilation on a terminal")
    n_parts: int = option(-1, "", "no effect: shards are found by their names")
    f16_kv: bool = option(True, "", "no effect: use type_k and type_v")


def model_options(o: LlamaOptions) -> dict[str, Any]:
    """Return the arguments of `llama_py.Model`."""
    for name, value in (o.kv_overrides or {}).items():
        if not isinstance(value, (bool, int, float, str)):
            raise ModelError(f"kv_overrides: unknown type of {name}: {value!r}")
    device = ("auto" if o.n_gpu_layers else "cpu") if o.device is None else o.device
    return {
        "device": device,
        "n_gpu_layers": -1 if device == "cpu" else o.n_gpu_layers,
        "split_mode": _name("split_mode", o.split_mode, _SPLIT, SPLIT_MODES),
        "main_gpu": o.main_gpu,
        "tensor_split": tuple(o.tensor_split or ()),
        "use_mmap": o.use_mmap,
        "use_mlock": o.use_mlock,
        "kv_overrides": dict(o.kv_overrides or {}),
        "progress": None if o.verbose else False,
    }


def context_options(o: LlamaOptions, n_ctx: int, n_rs_seq: int) -> dict[str, Any]:
    """Return the arguments of `Model.context`, for n_ctx cells and n_rs_seq states to roll back."""
    yarn = {
        name: -1.0 if getattr(o, name) == usual else getattr(o, name)
        for name, usual in _FROM_MODEL.items()
    }
    return {
        "n_ctx": n_ctx,
        "n_batch": min(n_ctx, o.n_batch),
        "n_ubatch": min(n_ctx, o.n_batch, o.n_ubatch),
        "n_threads": o.n_threads,
        "n_threads_batch": o.n_threads_batch,
        "rope_scaling": _name("rope_scaling_type", o.rope_scaling_type, _ROPE),
        "attention": _name("attention_type", o.attention_type, ATTENTION) or "auto",
        "rope_freq_base": o.rope_freq_base,
        "rope_freq_scale": o.rope_freq_scale,
        "yarn_ext_factor": o.yarn_ext_factor,
        "yarn_orig_ctx": o.yarn_orig_ctx,
        "offload_kqv": o.offload_kqv,
        "flash_attn": "on" if o.flash_attn else "auto",
        "swa_full": bool(o.swa_full),
        "type_k": cache_type(o.type_k),
        "type_v": cache_type(o.type_v),
        "n_rs_seq": n_rs_seq,
        "progress": None if o.verbose else False,
        # Rows of `scores` belong to the tokens in memory, so that earlier states are not restored.
        **({"cache_ram": 0} if o.logits_all else {}),
        **yarn,
    }


def pooling_name(o: LlamaOptions) -> str:
    """Return the pooling of embeddings: a value of `ContextParams.pooling`."""
    return _name("pooling_type", o.pooling_type, POOLING) or "auto"


def cache_type(given: int | str | None) -> str:
    """Return the name of a cache type, given as a number of ggml or a name."""
    if given is None:
        return "f16"
    if isinstance(given, str):
        return given
    if given not in TYPES:
        raise ModelError(f"type_k and type_v must be numbers of ggml's tensor types, got {given}")
    return TYPES[given].name


def _name(
    option: str, given: int | str | None, names: Sequence[str], known: Sequence[str] = ()
) -> Any:
    """Return the name of an enum value; None for -1 and None."""
    if given is None or given == -1:
        return None
    if isinstance(given, str) and given in (known or names):
        return given
    if isinstance(given, int) and 0 <= given < len(names):
        return names[given]
    raise ModelError(f"{option} must be in [-1, {len(names) - 1}] or a name, got {given!r}")


def describe_metadata(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return metadata as texts like llama.cpp's, without arrays."""
    return {
        key: _text(value)
        for key, value in metadata.items()
        if isinstance(value, (bool, int, float, str))
    }


def _text(value: bool | int | float | str) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, (bool, int)) else f"{value:.6f}"
