"""Checkpoints of the decoder of WavTokenizer (conversion/wavtokenizer.py)."""

from __future__ import annotations

from ggml_py.types import F32, GGMLType
from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.vocabulary import Vocabulary

TRAINING = ("codebook.cluster_size", "codebook.embed_avg", "codebook.inited")


class WavTokenizerConverter(Converter):
    arch = "wavtokenizer-dec"
    classes = ("WavTokenizerDec",)
    own_keys = (
        ("vocab_size", "u32", ("vocab_size",)),
        ("features_length", "u32", ("n_embd_features",)),
        ("feed_forward_length", "u32", ("n_ff",)),
        ("attention.group_norm_epsilon", "f32", ("group_norm_epsilon",)),
        ("attention.group_norm_groups", "u32", ("group_norm_groups",)),
        ("posnet.embedding_length", "u32", ("posnet_n_embd",)),
        ("posnet.block_count", "u32", ("posnet_n_layer",)),
        ("convnext.embedding_length", "u32", ("convnext_n_embd",)),
        ("convnext.block_count", "u32", ("convnext_n_layer",)),
    )
    names = {
        "backbone.embed": "conv1d",
        "backbone.norm": "token_embd_norm",
        "backbone.final_layer_norm": "output_norm",
        "head.out": "output",
        **{f"backbone.convnext.{{}}.{module}": f"convnext.{{}}.{new}" for module, new in {
            "dwconv": "dw", "norm": "norm", "pwconv1": "pw1", "pwconv2": "pw2", "gamma": "gamma",
        }.items()},
        **{f"backbone.posnet.{{}}.{module}": f"posnet.{{}}.{new}" for module, new in {
            "conv1": "conv1", "conv2": "conv2", "norm": "attn_norm", "norm1": "norm1",
            "norm2": "norm2", "q": "attn_q", "k": "attn_k", "v": "attn_v",
            "proj_out": "attn_output",
        }.items()},
    }  # fmt: skip

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        for part in ("posnet", "convnext"):
            for name, value in (self.find(part) or {}).items():
                self.config[f"{part}_{name}"] = value

    def select(self, name: str) -> str | None:
        return None if name.endswith(TRAINING) else super().select(name)

    def keys(self) -> None:
        super().keys()
        self.copy(*self.own_keys)
        self.out.boolean("attention.causal", False)

    def choose_tensor_type(self, name: str, array: LazyArray, wanted: GGMLType) -> GGMLType:
        is_norm = ".norm1." in name or ".norm2." in name  # columns
        return F32 if is_norm else super().choose_tensor_type(name, array, wanted)

    def vocabulary(self, v: Vocabulary) -> None:
        v.write_none()
