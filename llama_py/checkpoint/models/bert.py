"""Checkpoints of BERT, RoBERTa, XLM-RoBERTa, DistilBERT, Nomic BERT, Jina BERT 2 and 3
(conversion/bert.py)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar

from ggml_py.errors import ModelError
from ggml_py.types import F32
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.keys import KeyValues
from llama_py.checkpoint.names import pairs
from llama_py.checkpoint.output import NewTensor
from llama_py.checkpoint.pooling import pooling_keys
from llama_py.checkpoint.sentencepiece import CONTROL
from llama_py.checkpoint.unigram import write_xlm_roberta
from llama_py.checkpoint.vocabulary import SPACE, Vocabulary

EMBEDDINGS = pairs("""
    embeddings.word_embeddings=token_embd embeddings.token_type_embeddings=token_types
    embeddings.position_embeddings=position_embd embeddings.LayerNorm=token_embd_norm
    emb_ln=token_embd_norm
""")
CLASSIFIER = {
    "classifier": "cls",
    "classifier.dense": "cls",
    "pre_classifier": "cls",
    "classifier.out_proj": "cls.output",
}
BERT = {
    **EMBEDDINGS,
    **CLASSIFIER,
    **pairs("""
        encoder.layer.{}: attention.self.query=attn_q attention.self.key=attn_k
            attention.self.value=attn_v attention.output.dense=attn_output
            attention.output.LayerNorm=attn_output_norm intermediate.dense=ffn_up
            output.dense=ffn_down output.LayerNorm=layer_output_norm
    """),
}
DISTILBERT = {
    **EMBEDDINGS,
    **CLASSIFIER,
    **pairs("""
        transformer.layer.{}: attention.q_lin=attn_q attention.k_lin=attn_k attention.v_lin=attn_v
            attention.out_lin=attn_output sa_layer_norm=attn_output_norm ffn.lin1=ffn_up
            ffn.lin2=ffn_down output_layer_norm=layer_output_norm
    """),
}
NOMIC = {
    **EMBEDDINGS,
    **pairs("""
        encoder.layers.{}: attn.Wqkv=attn_qkv mixer.Wqkv=attn_qkv attn.out_proj=attn_output
            mixer.out_proj=attn_output norm1=attn_output_norm mlp.fc1=ffn_up mlp.fc11=ffn_up
            mlp.fc12=ffn_gate mlp.fc2=ffn_down mlp.router.layer=ffn_gate_inp
            mlp.experts.mlp.w1=ffn_up_exps mlp.experts.mlp.w2=ffn_down_exps norm2=layer_output_norm
    """),
}
JINA2 = {
    **BERT,
    **pairs("""
        encoder.layer.{}: attention.self.layer_norm_q=attn_q_norm
            attention.self.layer_norm_k=attn_k_norm layer_norm_1=attn_norm_2
            layer_norm_2=layer_output_norm mlp.layernorm=layer_output_norm mlp.gated_layers=ffn_up
            mlp.up_gated_layer=ffn_up mlp.gated_layers_v=ffn_up mlp.gated_layers_w=ffn_gate
            mlp.wo=ffn_down mlp.down_layer=ffn_down
    """),
}
# Modules that embeddings and classifiers do not use: pooler, heads that predict tokens.
HEADS = ("pooler.dense.", "cls.predictions", "cls.seq_relationship", "vocab_", "lm_head.")
POSITIONS = "embeddings.position_embeddings.weight"
# Keys of Nomic BERT and the only values that llama.cpp computes
NOMIC_VALUES = {"causal": False, "prenorm": False, "rotary_emb_fraction": 1.0,
                "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
                "max_trained_positions": 2048}  # fmt: skip
NOMIC_CONTEXTS = {8192: 2048, 2048: 512}  # of config.json, of the training


class BertConverter(Converter):
    arch = "bert"
    classes: ClassVar[tuple[str, ...]] = (
        "BertModel",
        "BertForMaskedLM",
        "CamembertModel",
        "BertForSequenceClassification",
    )
    names = BERT
    prefixes = ("bert.",)
    heads: ClassVar[tuple[str, ...]] = HEADS

    def select(self, name: str) -> str | None:
        for prefix in self.prefixes:
            name = name.removeprefix(prefix)
        name = name.removesuffix(".gamma") + ".weight" if name.endswith(".gamma") else name
        name = name.removesuffix(".beta") + ".bias" if name.endswith(".beta") else name
        if name == "embeddings.position_ids" or name.startswith(self.heads):
            return None
        is_output = self.labels or "pre_classifier.weight" in self.folder.tensors
        if is_output and name in ("classifier.weight", "classifier.bias"):
            name = name.replace("classifier", "classifier.out_proj")
        return super().select(name)

    @property
    def labels(self) -> list[str]:
        """Names of a classifier's outputs, except the default names of transformers."""
        found = self.find("id2label")
        if not isinstance(found, dict):
            return []
        try:
            ordered = sorted(found.items(), key=lambda pair: int(pair[0]))
        except ValueError:
            raise self.refuse(("id2label",), "an object with numbers as keys") from None
        labels = [str(label) for _, label in ordered]
        return [] if len(labels) == 2 and labels[0] == "LABEL_0" else labels

    def keys(self) -> None:
        super().keys()
        self.out.boolean("attention.causal", False)
        pooling_keys(self.folder, self.out)
        self.out.array("classifier.output_labels", self.labels)

    def write_type_count(self) -> None:
        """Set the number of token types."""
        self.out.u32("tokenizer.ggml.token_type_count", self.config.get("type_vocab_size", 1))

    def vocabulary(self, v: Vocabulary) -> None:
        """Write a WordPiece: tokens that start a word get the sign of a space."""
        tokens, types, pre = v.tokens_of_json()
        self.write_type_count()
        words = [
            text if type == CONTROL
            else text.removeprefix("##") if text.startswith("##")
            else SPACE + text
            for text, type in zip(tokens, types, strict=True)
        ]  # fmt: skip
        v.write("bert", pre, words, types)
        v.write_special(len(words))


class DistilBertConverter(BertConverter):
    classes = ("DistilBertModel", "DistilBertForMaskedLM", "DistilBertForSequenceClassification")
    names = DISTILBERT
    prefixes = ("distilbert.",)

    def keys(self) -> None:
        self.out.f32("attention.layer_norm_epsilon", 1e-12)
        super().keys()


class RobertaConverter(BertConverter):
    """Positions count from the number of the padding token on."""

    classes: ClassVar[tuple[str, ...]] = ("RobertaModel", "RobertaForSequenceClassification")
    prefixes = ("roberta.",)
    offset = 0

    @property
    def has_offset(self) -> bool:
        return True

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        if self.has_offset and type(id := self.find("pad_token_id")) is int:
            self.offset = id + 1
            if self.find("max_position_embeddings") is not None:
                n = self.integer("max_position_embeddings")
                self.config["max_position_embeddings"] = n - self.offset

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        array = array.rows(self.offset) if name == POSITIONS else array
        yield from super().tensors(name, array, layer)

    def vocabulary(self, v: Vocabulary) -> None:
        v.bpe()
        self.write_type_count()


class XlmRobertaConverter(RobertaConverter):
    """XLM-RoBERTa, and Jina 3, with an adapter for each task."""

    classes = ("XLMRobertaModel", "XLMRobertaForSequenceClassification")
    names = {**BERT, **NOMIC}

    def architecture(self) -> str:
        return "jina-bert-v3" if self.find("lora_adaptations") else self.arch

    def select(self, name: str) -> str | None:
        name = name.replace(".parametrizations.", ".").removesuffix(".original")
        return super().select(name)

    @cached_property
    def tasks(self) -> dict[str, list[NewTensor]]:
        """Tensors of the adapter of each task."""
        names = self.find("lora_adaptations")
        return {str(name): [] for name in names} if isinstance(names, list) else {}

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if not name.endswith((".0.lora_A", ".0.lora_B")):
            yield from super().tensors(name, array, layer)
            return
        if array.ndim != 3 or array.shape[0] != len(self.tasks):
            raise ModelError(
                f"{name} must have a matrix for each of {len(self.tasks)} adapters, got "
                f"{list(array.shape)}"
            )
        new = self.rename(name[: -len(".0.lora_A")]) + name[-len(".lora_A") :].lower()
        for i, found in enumerate(self.tasks.values()):
            part = array.rows(i, i + 1).reshape(*array.shape[1:])
            if new.startswith("token_types.weight."):  # rows are embeddings, so A and B are swapped
                found.append(NewTensor(new[:-1] + ("b" if new[-1] == "a" else "a"), F32, part))
            else:
                turned = part.transpose() if new == "token_embd.weight.lora_b" else part
                found.append(NewTensor(new, F32, turned))

    def adapters(self) -> Iterator[tuple[str, KeyValues, list[NewTensor]]]:
        prefixes = self.find("task_instructions")
        for task, tensors in self.tasks.items():
            out = KeyValues(self.out.arch)
            out.text("general.type", "adapter")
            out.text("adapter.type", "lora")
            alpha = self.find("lora_alpha")
            out.f32("adapter.lora.alpha", 1.0 if alpha is None else alpha)
            out.text("adapter.lora.task_name", task)
            if isinstance(prefixes, dict) and prefixes:
                out.text("adapter.lora.prompt_prefix", prefixes.get(task))
            if tensors:
                yield task, out, tensors

    def vocabulary(self, v: Vocabulary) -> None:
        write_xlm_roberta(v, self.config.get("type_vocab_size", 1), False)


class NomicBertConverter(RobertaConverter):
    """Nomic BERT, dense or with experts in some layers."""

    arch = "nomic-bert"
    classes = ("NomicBertModel",)
    names = NOMIC
    prefixes = ("bert.",)

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self._check()
        self.config["n_positions"] = NOMIC_CONTEXTS[self.integer("n_positions")]

    def architecture(self) -> str:
        return "nomic-bert-moe" if self.find("moe_every_n_layers") else self.arch

    @property
    def has_offset(self) -> bool:
        model = self.folder.json("tokenizer.json").get("model")
        return isinstance(model, dict) and model.get("type") == "Unigram"

    def _check(self) -> None:
        """Raise ModelError for values of config.json that llama.cpp does not compute."""
        is_moe = self.architecture() == "nomic-bert-moe"
        wanted: dict[str, Any] = {
            **NOMIC_VALUES,
            **dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), is_moe),
            "activation_function": "gelu" if is_moe else "swiglu",
        }
        for key, value in wanted.items():
            if self.config.get(key, value) != value:
                raise self.refuse((key,), str(value))
        if self.integer("n_positions") not in NOMIC_CONTEXTS:
            known = " or ".join(map(str, NOMIC_CONTEXTS))
            raise self.refuse(("n_positions",), known)

    def select(self, name: str) -> str | None:
        return None if "mlp.experts.bias" in name else super().select(name)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        if ".mlp.experts.mlp.w" in name:
            n = self.integer("num_local_experts", "num_experts")
            array = array.reshape(n, self.integer("n_inner"), self.integer("n_embd"))
            array = array.swap(1, 2) if name.endswith("w2") else array
            name += ".weight"
        yield from super().tensors(name, array, layer)

    def keys(self) -> None:
        super().keys()
        if (every := self.find("moe_every_n_layers")) is not None and every:
            self.out.u32("moe_every_n_layers", every)
            self.out.u32("expert_used_count", self.integer("moe_top_k"))

    def vocabulary(self, v: Vocabulary) -> None:
        if self.has_offset:
            has_mask = self.architecture() == "nomic-bert-moe"
            write_xlm_roberta(v, self.config.get("type_vocab_size", 1), has_mask)
        else:
            BertConverter.vocabulary(self, v)


class JinaBert2Converter(BertConverter):
    arch = "jina-bert-v2"
    classes = ("JinaBertModel", "JinaBertForMaskedLM")
    names = JINA2

    def vocabulary(self, v: Vocabulary) -> None:
        kind = str(self.folder.json("tokenizer_config.json").get("tokenizer_class", "Bert"))
        if kind.startswith("Bert"):
            super().vocabulary(v)
            return
        splitter = self.folder.json("tokenizer.json").get("pre_tokenizer") or {}
        if splitter.get("type") == "Whitespace":
            v.bpe("whitespace", "whitespace")
        else:
            v.bpe()
        self.out.u32("tokenizer.ggml.token_type_count", 2)
