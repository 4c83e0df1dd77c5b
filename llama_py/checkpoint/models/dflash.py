"""Checkpoints of DFlash and DSpark draft models (conversion/qwen.py: DFlashModel, DSparkModel;
muse_glimmer.py: MuseGlimmerAssistantModel)."""

from __future__ import annotations

from typing import Any, ClassVar

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.models.gemma4 import UNROTATED
from llama_py.checkpoint.models.qwen3 import Qwen3Converter
from llama_py.checkpoint.names import HEAD_NORMS, LLAMA, pairs
from llama_py.checkpoint.shared_keys import Keys
from llama_py.checkpoint.target import TargetConverter
from llama_py.checkpoint.vocabulary import Vocabulary

BLOCK_SIZE = 16
# RoPE of Gemma 4, without rope_parameters
GEMMA_ROPE: dict[str, Any] = {
    "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6,
}  # fmt: skip
INTERLEAVED = ("q_proj.weight", "k_proj.weight", "q_norm.weight", "k_norm.weight")
CONV_KEYS: Keys = (
    ("conv_kernel_size", "u32", ("conv_kernel_size",)),
    ("conv_group_size", "u32", ("conv_group_size",)),
    ("selector_rank", "u32", ("selector_rank",)),
    ("selector_top_k", "u32", ("selector_top_k",)),
)


class DraftConverter(TargetConverter):
    """A draft model with its target's vocabulary."""

    def vocabulary(self, v: Vocabulary) -> None:
        from llama_py.checkpoint.models import converter

        kind = converter(self.target.model_name)
        if not issubclass(kind, TargetConverter):
            other = kind(self.target, self.options)
            other.out = self.out
            other.vocabulary(Vocabulary(self.target, self.out, v.n_vocab, v.pre))
        else:
            raise ModelError(
                f"{self.target.path}: the target must not be a draft model; use the folder of the "
                "model that it drafts for (--target-model-dir)"
            )


class DFlashConverter(DraftConverter, Qwen3Converter):
    arch = "dflash"
    classes: ClassVar[tuple[str, ...]] = ("DFlashDraftModel", "DFlash2DraftModel")
    layers = {
        **HEAD_NORMS,
        **pairs("""
            post_self_attn_layernorm=post_attention_norm post_feedforward_layernorm=post_ffw_norm
            post_mlp_layernorm=post_ffw_norm layer_scalar=layer_output_scale
            self_attn.sinks=attn_sinks self_attn.attention_sink_bias=attn_sinks
            attention_conv.base_kernel=attn_conv_base
            attention_conv.kernel_projection=attn_conv_proj mlp_conv.base_kernel=ffn_conv_base
            mlp_conv.kernel_projection=ffn_conv_proj
        """),
    }
    names = {
        **LLAMA,
        "model.lm_head": "output",
        "model.fc": "fc",
        "model.hidden_norm": "enc.output_norm",
        "model.markov_head.markov_w1": "markov_w1",
        "model.markov_head.markov_w2": "markov_w2",
        "model.confidence_head.proj": "conf_proj",
        "model.candidate_selector.predecessor_codebook": "selector_predecessor",
        "model.candidate_selector.successor_codebook": "selector_successor",
        "model.candidate_selector.hidden_projection": "selector_hidden",
    }
    suffixes = {"sinks": ".weight", "attention_sink_bias": ".weight", "_codebook": ".weight"}

    @property
    def draft(self) -> dict[str, Any]:
        """The object dflash_config; empty if config.json lacks it."""
        found = self.find("dflash_config") or {}
        if not isinstance(found, dict):
            raise ModelError(f"dflash_config must be an object, got {str(found)[:50]}")
        return found

    def either(self, name: str) -> Any:
        """Return a value of dflash_config, or of config.json."""
        return self.draft.get(name, self.config.get(name))

    def select(self, name: str) -> str | None:
        if (self.folder.path / "mask_embedding.pt").exists():
            raise ModelError(
                f"{self.folder.path}: mask_embedding.pt is a Python pickle, which can run any "
                "program; store its row in the weights of model.embed_tokens"
            )
        return Converter.select(self, name if name.startswith("model.") else f"model.{name}")

    def keys(self) -> None:
        super().keys()
        out, draft = self.out, self.draft
        if (part := self.rope.get("partial_rotary_factor")) is not None:
            out.u32("rope.dimension_count", int(self.head_dim * part))
        if (scale := draft.get("attention_value_scale")) is not None:
            out.f32("attention.value_scale", scale)
        size = self.either("block_size")
        out.u32("block_size", BLOCK_SIZE if size is None else size)
        for key, kind, (name,) in CONV_KEYS:
            if "conv_kernel_size" in draft:
                out.add(kind, key, draft.get(name))
        if (scale := self.either("output_multiplier")) is not None:
            out.f32("logit_scale", scale)
        if (cap := self.either("final_logit_softcapping")) is not None and cap > 0:
            out.f32("final_logit_softcapping", cap)
        if (scale := self.either("input_embedding_scale")) is not None:
            out.f32("embedding_scale", scale)
        if layers := self.either("target_layer_ids"):
            out.array("target_layers", [i + 1 for i in layers])
        self._window_keys()
        causal = self.find("is_causal")
        causal = draft.get("causal") if causal is None else causal
        if causal is not None:
            out.boolean("attention.causal", causal)
        if self._target_has_sections():  # drafts rotate by time only
            out.array("rope.dimension_sections", [self.head_dim // 2, 0, 0, 0])

    def _window_keys(self) -> None:
        has_windows = bool(self.draft.get("use_swa", False))
        window = self.draft.get("swa_window_size") or self.find("sliding_window")
        if (self.find("use_sliding_window") or has_windows) and window:
            types = self.find("layer_types") or []
            windows = [t == "sliding_attention" for t in types]
            self.out.u32("attention.sliding_window", window)
            pattern = [True] * self.n_layer if has_windows else windows
            self.out.array("attention.sliding_window_pattern", pattern)

    def _target_has_sections(self) -> bool:
        if self.options.target is None:
            return False
        names = ("rope_parameters", "rope_scaling")
        rope: Any = next((r for n in names if (r := self.target_config.get(n))), {})
        return "mrope_section" in rope

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name == "model.embed_tokens.weight" and not self.config.get("has_embed_tokens", True):
            return
        if not self.config.get("rope_is_neox_style", True) and name.endswith(INTERLEAVED):
            shape = array.shape
            pairs = array.reshape(-1, self.head_dim // 2, 2, *shape[1:])
            array = pairs.swap(1, 2).reshape(*shape)
        yield from super().tensors(name, array, layer)

    def vocabulary(self, v: Vocabulary) -> None:
        super().vocabulary(v)
        if (id := self.draft.get("mask_token_id")) is not None:
            self.out.u32("tokenizer.ggml.mask_token_id", id)


class DSparkConverter(DFlashConverter):
    """DFlash with a Markov head, which depends on the previous token."""

    classes = (
        "Qwen3DSparkModel",
        "DSparkDraftModel",
        "DSparkSpeculator",
        "Lfm2DSparkDraftModel",
        "LingDSparkModel",
    )
    skipped = ("model.t2d",)

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        config, aux = folder.config, folder.config.get("aux_hidden_state_layer_ids")
        is_eagle = aux is not None or "transformer_layer_config" in config
        self.from_anchor = bool(config.get("sample_from_anchor", not is_eagle))
        config |= config.get("transformer_layer_config", {})
        draft = {n: config[n] for n in ("target_layer_ids", "mask_token_id") if n in config}
        if aux is not None:
            draft["target_layer_ids"] = [i - 1 for i in aux]
        config.setdefault("dflash_config", draft)
        super().__init__(folder, options)
        if config.get("markov_head_type", "vanilla") != "vanilla":
            raise ModelError(f"markov_head_type must be vanilla, got {config['markov_head_type']}")
        self.n_vocab = self.integer("vocab_size")
        self.n_vocab_draft = self.find("draft_vocab_size") or self.n_vocab
        if self.n_vocab_draft > self.n_vocab:
            raise ModelError(
                f"draft_vocab_size must be at most vocab_size = {self.n_vocab}, got "
                f"{self.n_vocab_draft}"
            )

    def keys(self) -> None:
        super().keys()
        self.out.boolean("sample_from_anchor", self.from_anchor)
        self.out.boolean("has_confidence_head", has_confidence(self.folder))

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if name == "model.d2t":
            if array.shape != (self.n_vocab_draft,):
                raise ModelError(f"d2t must have {self.n_vocab_draft} entries, got {array.shape}")
            self.token_ids = self.target_ids(array, self.n_vocab)
        elif not (self.n_vocab_draft == self.n_vocab and name.endswith("lm_head.weight")):
            yield from super().tensors(name, array, layer)

    def check_complete(self) -> None:
        super().check_complete()
        if self.n_vocab_draft < self.n_vocab and self.token_ids is None:
            raise ModelError(
                f"{self.folder.path}: tensor d2t is missing, which draft_vocab_size = "
                f"{self.n_vocab_draft} below vocab_size = {self.n_vocab} needs; download all files"
            )


class Gemma4DSparkConverter(DFlashConverter):
    """DSpark with layers of Gemma 4 that attend to all tokens."""

    classes = ("Gemma4DSparkModel",)
    layers = {
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
    }
    suffixes = {**DFlashConverter.suffixes, ".layer_scalar": ".weight"}

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        for name, wanted in (
            ("attention_k_eq_v", (True,)),
            ("layer_types", (["full_attention"] * self.n_layer,)),
            ("hidden_activation", (None, "gelu_pytorch_tanh")),
            ("attention_bias", (None, False)),
            ("enable_moe_block", (None, False)),
            ("draft_vocab_size", (None, self.integer("vocab_size"))),
            ("final_logit_softcapping", (None, 0)),
        ):
            if self.config.get(name) not in wanted:
                raise self.refuse((name,), repr(wanted[-1]))
        if self.either("markov_head_type") not in (None, "vanilla"):
            raise self.refuse(("markov_head_type",), "vanilla")
        if self.rope.get("rope_type") not in ("default", "proportional"):
            raise self.refuse(("rope_type",), "default or proportional")

    def _rope(self) -> dict[str, Any]:
        rope = self.config.get("rope_parameters") or GEMMA_ROPE
        found = rope.get("full_attention", rope) if isinstance(rope, dict) else {}
        return found if isinstance(found, dict) else {}

    def select(self, name: str) -> str | None:
        return super().select(name.replace("confidence_proj.", "confidence_head.proj."))

    def extra(self) -> NamedArrays:
        if self.rope["rope_type"] == "proportional":
            size = self.integer("global_head_dim") * self.rope.get("partial_rotary_factor", 0.25)
            n, half = int(size / 2), self.integer("global_head_dim") // 2
            if size != 2 * n or not 0 < n <= half:
                raise self.refuse(("rope_parameters",), "a rotation of an even number of values")
            yield "rope_freqs.weight", LazyArray.from_values([1.0] * n + [UNROTATED] * (half - n))

    def keys(self) -> None:
        super().keys()
        out, head_dim = self.out, self.integer("global_head_dim")
        out.u32("attention.head_count_kv", self.integer("num_global_key_value_heads"))
        for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
            out.u32(key, head_dim)
        out.f32("embedding_scale", self.integer("hidden_size") ** 0.5)
        out.f32("attention.scale", 1.0)
        out.text("hidden_activation", "gelu_pytorch_tanh")
        out.boolean("sample_from_anchor", self.config.get("sample_from_anchor", True))
        if not self.either("target_layer_ids"):
            raise self.refuse(("target_layer_ids",))
        out.boolean("has_confidence_head", has_confidence(self.folder))

    def vocabulary(self, v: Vocabulary) -> None:
        super().vocabulary(v)
        if self.either("mask_token_id") is None:
            raise self.refuse(("mask_token_id",))
        self.out.u32("tokenizer.ggml.mask_token_id", self.either("mask_token_id"))


def has_confidence(folder: CheckpointFolder) -> bool:
    """Return True if a DSpark model estimates which of its tokens are right."""
    return any("confidence_head.proj" in n or "confidence_proj." in n for n in folder.tensors)


class MuseGlimmerAssistantConverter(DraftConverter):
    arch = "dflash"
    classes = ("MuseGlimmerAssistantModel",)
    names = {
        **{name.removeprefix("model."): new for name, new in DFlashConverter.names.items()},
        "encoder.fc": "fc",
        "encoder.output_norm_enc": "enc.output_norm",
    }
    needed = ("block_size", "target_layer_ids")

    def keys(self) -> None:
        super().keys()
        self.out.u32("block_size", self.integer("block_size"))
        layers = self.find("target_layer_ids")
        self.out.array("target_layers", [i + 1 for i in layers])
        if self.find("sliding_window") and (types := self.find("layer_types")):
            self.out.u32("attention.sliding_window", self.integer("sliding_window"))
            windows = [t == "sliding_attention" for t in types]
            self.out.array("attention.sliding_window_pattern", windows)

    def vocabulary(self, v: Vocabulary) -> None:
        super().vocabulary(v)
        if (id := self.find("mask_token_id")) is not None:
            self.out.u32("tokenizer.ggml.mask_token_id", id)
