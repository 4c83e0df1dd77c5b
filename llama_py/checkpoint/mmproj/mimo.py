"""Encoders of images and sound of MiMo-V2 (conversion/mimo.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from llama_py.checkpoint.arrays import Array, LazyArray, stack
from llama_py.checkpoint.media import EPSILON, Config, Tensors, add_dims
from llama_py.checkpoint.media_names import name_blocks, name_whisper
from llama_py.checkpoint.mmproj.qwen import QWEN, QwenVisionConverter
from llama_py.checkpoint.mmproj.whisper import OLD_NAMES
from llama_py.checkpoint.safetensors import read_safetensors

TOKENIZER = "audio_tokenizer"  # a subfolder
CODEBOOK = re.compile(r"encoder\.quantizer\.vq\.layers\.(\d+)\._codebook\.embed")
TRAINING = ("_codebook.cluster_size", "_codebook.embed_avg", "_codebook.inited")
CODES = re.compile(r"speech_embeddings\.(\d+)\.weight")
LOCAL = "audio_encoder.input_local_transformer"
LOCAL_LAYER = {
    "input_layernorm": "ln1",
    "post_attention_layernorm": "ln2",
    **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
    "self_attn.o_proj": "attn_out",
    **{f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
}


class MimoMediaConverter(QwenVisionConverter):
    classes = ("MiMoV2ForCausalLM",)
    encoders = ("vision", "audio")
    keeps = r"visual\.|speech_embeddings\.|audio_encoder\."
    renames = ()
    names = {
        **QWEN,
        **name_whisper("encoder"),
        "encoder.down_sample_layer.{}": "a.downsample.conv",
        "encoder.down_sample_norm": "a.downsample.norm",
        **name_blocks(f"{LOCAL}.layers.{{}}", LOCAL_LAYER, "mm.a.local_blk.{}"),
        f"{LOCAL}.norm": "mm.a.local_norm",
    }
    vision_defaults: ClassVar[Mapping[str, Any]] = {
        "image_size": 560, "num_heads": 32, "depth": 28, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-6, "vit_window_attn_types": [],
    }  # fmt: skip
    in_f32 = r"^a\.rvq\.codebook|^mm\.a\.code_embd|^a\.(conv1d\.\d|downsample\.conv)\.weight"

    def read_audio(self) -> Config:
        found = self.folder.json(f"{TOKENIZER}/config.json")
        return {**found, **{new: self.need(found, old) for new, old in OLD_NAMES.items()}}

    def keys(self) -> None:
        super().keys()
        vision, audio, local = self.vision, self.audio, self.section("audio_config")
        n, period = int(self.need(audio, "encoder_layers")), audio.get("swa_per_block", 1)
        has_windows = bool(audio.get("hybrid_attention")) and period > 1
        windows = [0 if has_windows and (i + 1) % period else -1 for i in range(n)]
        self.put({
            "vision.projector_type": "mimovl",
            "use_silu": True,
            "vision.attention.head_count_kv": vision["num_key_value_heads"],
            "vision.spatial_merge_size": int(self.need(vision, "spatial_merge_size")),
            "vision.window_size": self.need(vision, "visual_token_window_size"),
            "vision.wa_pattern_mode": vision["vit_window_attn_types"],
            f"vision.{EPSILON}": vision["rms_norm_eps"],
            **{f"vision.image_{name}": self.process(name) for name in ("min_pixels", "max_pixels")},
            "audio.projector_type": "mimo_audio",
            "audio.num_mel_bins": self.need(audio, "n_mels"),
            f"audio.{EPSILON}": audio.get("layer_norm_eps", 1e-5),
            "audio.rvq.num_quantizers": len(self.codebooks),
            "audio.rvq.codebook_size": [book.shape[0] for book in self.codebooks],
            "audio.wa_pattern_mode": windows,
            "audio.window_size": int(self.need(audio, "encoder_attn_window_size")[0]),
            "audio.local_block_count": int(self.need(local, "input_local_layers")),
            "audio.local_group_size": int(self.need(local, "group_size")),
        })  # fmt: skip

    @cached_property
    def tokenizer_tensors(self) -> dict[str, LazyArray]:
        """Tensors of the subfolder, in order."""
        stored = read_safetensors(self.folder.path / TOKENIZER / "model.safetensors")
        return {name: LazyArray.from_stored(t) for name, t in stored.items()}

    @cached_property
    def codebooks(self) -> list[LazyArray]:
        """Vectors of the codes of sound, a matrix for each code of a step."""
        found = {
            int(match[1]): array
            for name, array in self.tokenizer_tensors.items()
            if (match := CODEBOOK.fullmatch(name))
        }
        if not found:
            raise self.refuse((f"{TOKENIZER}: encoder.quantizer",))
        return [found[i] for i in range(len(found))]

    def extra(self) -> Tensors:
        for name, array in self.tokenizer_tensors.items():
            is_book = CODEBOOK.fullmatch(name) or name.endswith(TRAINING)
            if not is_book and not name.startswith("decoder."):
                is_bias = name.endswith(("conv1.bias", "conv2.bias"))
                yield self.rename(name), add_dims(array, 1) if is_bias else array
        yield "a.rvq.codebook.weight", stack_padded(self.codebooks)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if match := CODES.fullmatch(name):
            n = int(self.need(self.section("audio_config"), "audio_channels"))
            found = self.gatherer.add("speech_embeddings", int(match[1]), array, n)
            if found is not None:
                yield "mm.a.code_embd.weight", stack(found)
        elif name.startswith("audio_encoder.projection.mlp."):
            yield f"mm.a.mlp.{2 if layer else 1}.{name.rpartition('.')[2]}", array
        else:
            yield from super().tensors(name, array, layer)


def stack_padded(arrays: list[LazyArray]) -> LazyArray:
    """Join matrices of different heights, with rows of zeros."""
    n = max(array.shape[0] for array in arrays)
    shape = (len(arrays), n, arrays[0].shape[1])

    def make() -> Array:
        made = np.zeros(shape, arrays[0].dtype)
        for i, array in enumerate(arrays):
            made[i, : array.shape[0]] = array.read()
        return made

    return LazyArray(shape, arrays[0].dtype, make, arrays[0].stored)
