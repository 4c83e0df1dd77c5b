"""Audio encoders of Granite Speech and LFM2-Audio: conformers (conversion/granite.py, lfm2.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.media import EPSILON, Config, MediaConverter, Tensors, add_dims
from llama_py.checkpoint.media_names import CONFORMER_LAYER, name_blocks, name_q_former

NORM = re.compile(r"(.*\.batch_norm)\.(weight|bias|running_mean|running_var)")
PARTS = ("weight", "bias", "running_mean", "running_var")
BATCH_EPSILON = 1e-5


class BatchNormConverter(MediaConverter):
    """An encoder with batch norms, which become a factor and an offset."""

    encoders = ("audio",)
    in_f32 = r"a\.conv1d\.|\.conv_(dw|pw1|pw2)\.weight"

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        match = NORM.fullmatch(name)
        if match is None:
            yield from super().tensors(name, array, layer)
            return
        found = self.gatherer.add(match[1], PARTS.index(match[2]), array, len(PARTS))
        if found is not None:
            for part, one in zip(("weight", "bias"), fold(*found), strict=True):
                yield self.rename(f"{match[1]}.{part}"), one


def fold(weight: LazyArray, bias: LazyArray, mean: LazyArray, var: LazyArray) -> list[LazyArray]:
    """Return the factor and the offset of a batch norm, in F32."""

    def factor() -> Any:
        return weight.read() / np.sqrt(var.read() + np.float32(BATCH_EPSILON))

    return [
        LazyArray(weight.shape, np.float32, factor),
        LazyArray(weight.shape, np.float32, lambda: bias.read() - mean.read() * factor()),
    ]


class GraniteSpeechConverter(BatchNormConverter):
    classes: ClassVar[tuple[str, ...]] = ("GraniteSpeechForConditionalGeneration",)
    names = {
        "encoder.input_linear": "a.input_projection",
        "encoder.out": "a.enc_ctc_out",
        "encoder.out_mid": "a.enc_ctc_out_mid",
        "projector.query": "a.proj_query",
        "projector.linear": "a.proj_linear",
        "projector.qformer.layernorm": "a.proj_norm",
        **name_q_former("projector.qformer.encoder.layer.{}", "a.proj_blk.{}"),
        **name_blocks("encoder.layers.{}", CONFORMER_LAYER, "a.blk.{}"),
        "encoder.layers.{}.conv.norm": "a.blk.{}.norm_conv",
        "encoder.layers.{}.attn.rel_pos_emb.weight": "a.blk.{}.attn_rel_pos_emb",
    }
    drops = r"attention_dists|num_batches_tracked"
    audio_defaults: ClassVar[Mapping[str, Any]] = {
        "input_dim": 160, "num_layers": 10, "hidden_dim": 1024, "feedforward_mult": 4,
        "num_heads": 8, "context_size": 200, "max_pos_emb": 512, "conv_kernel_size": 15,
    }  # fmt: skip

    def read_audio(self) -> Config:
        found = {**self.audio_defaults, **self.section("encoder_config")}
        width, heads = found["hidden_dim"], found["num_heads"]
        return {
            **found,
            "hidden_size": width,
            "intermediate_size": width * found["feedforward_mult"],
            "num_attention_heads": heads,
        }

    def keys(self) -> None:
        super().keys()
        audio, whole = self.audio, self.whole
        self.put({
            "projector_type": "granite_speech",
            "audio.num_mel_bins": audio["input_dim"],
            f"audio.{EPSILON}": 1e-5,
            "audio.chunk_size": audio["context_size"],
            "audio.conv_kernel_size": audio["conv_kernel_size"],
            "audio.max_pos_emb": audio["max_pos_emb"],
            "audio.projector.window_size": whole.get("window_size", 15),
            "audio.projector.downsample_rate": whole.get("downsample_rate", 5),
            "audio.projector.head_count": self.projector.get("num_attention_heads", 12),
        })  # fmt: skip

    @property
    def projector(self) -> Config:
        return self.section("projector_config")

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if name.endswith(".attn.to_kv.weight"):
            half = array.shape[0] // 2
            for part, one in zip("kv", array.split([half, half]), strict=True):
                yield self.rename(name.replace("to_kv", f"to_{part}")), one
            return
        if name.endswith((".up_conv.weight", ".down_conv.weight")) and array.shape[2:] == (1,):
            array = array.reshape(*array.shape[:2])
        elif "depth_conv" in name and array.ndim == 3 and array.shape[1] == 1:
            array = array.reshape(array.shape[0], array.shape[2])
        yield from super().tensors(name, array, layer)


class GraniteSpeechPlusConverter(GraniteSpeechConverter):
    """The projector takes the results of further layers as well."""

    classes = ("GraniteSpeechPlusForConditionalGeneration",)

    def keys(self) -> None:
        super().keys()
        if layers := self.audio.get("cat_hidden_layers"):
            self.put({"audio.feature_layer": layers})
            wanted = self.audio["hidden_dim"] * (len(layers) + 1)
            if self.projector.get("encoder_hidden_size") != wanted:
                raise self.refuse(("projector_config.encoder_hidden_size",), str(wanted))


class Lfm2AudioConverter(BatchNormConverter):
    classes = ("Lfm2AudioForConditionalGeneration",)
    names = {
        "audio_embedding.embedding": "a.position_embd",
        "audio_embedding.embedding_norm": "a.position_embd_norm",
        "audio_embedding.to_logits": "a.embd_to_logits",
        "conformer.pre_encode.conv.{}": "a.conv1d.{}",
        "conformer.pre_encode.out": "a.pre_encode.out",
        "audio_adapter.model.{}": "mm.a.mlp.{}",
        **name_blocks("conformer.layers.{}", CONFORMER_LAYER, "a.blk.{}"),
    }
    drops = (
        r"^lfm\.|audio_loss_weight|codebook_offsets|depth_embeddings|depth_linear|depthformer"
        r"|num_batches_tracked"
    )

    def read_audio(self) -> Config:
        found = self.section("encoder")
        width = self.need(found, "d_model")
        heads = self.need(found, "n_heads")
        sizes = {"hidden_size": width, "intermediate_size": width, "num_attention_heads": heads}
        return {**found, **sizes}

    def keys(self) -> None:
        super().keys()
        self.put({
            "projector_type": "lfm2a",
            "audio.num_mel_bins": self.need(self.audio, "feat_in"),
            f"audio.{EPSILON}": 1e-5,
        })  # fmt: skip

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if name.startswith("conformer.pre_encode.conv.") and name.endswith(".bias"):
            array = add_dims(array, 2)
        elif name.endswith("conv.depthwise_conv.weight"):
            array = array.reshape(array.shape[0], array.shape[2])
        elif ".conv.pointwise_conv" in name and name.endswith(".weight"):
            array = array.reshape(*array.shape[:2])
        yield from super().tensors(name, array, layer)
