"""Encoders of voices and generators of sound of Qwen3-TTS and Pocket TTS
(conversion/qwen3tts.py, pockettts.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from llama_py.checkpoint.arrays import Array, LazyArray, stack
from llama_py.checkpoint.media import EPSILON, Config, MediaConverter, Tensors, split_three
from llama_py.checkpoint.media_names import name_blocks
from llama_py.checkpoint.names import pairs
from llama_py.checkpoint.safetensors import read_safetensors

CODES, TOKENIZER = 15, "speech_tokenizer"  # books of codes after the first; a subfolder
WAV, CODE = "a.gen.wav", "a.gen.code"
DECODER_LAYER = pairs("""
    input_layernorm=ln1 self_attn.q_proj=attn_q self_attn.k_proj=attn_k self_attn.v_proj=attn_v
    self_attn.o_proj=attn_out post_attention_layernorm=ln2 mlp.gate_proj=ffn_gate mlp.up_proj=ffn_up
    mlp.down_proj=ffn_down
""")
HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
SCALES = {"self_attn_layer_scale.scale": "ls1", "mlp_layer_scale.scale": "ls2"}
UPSAMPLING = {
    "0.conv": "conv", "1.dwconv.conv": "dwconv", "1.norm": "norm", "1.pwconv1": "pw1",
    "1.pwconv2": "pw2",
}  # fmt: skip
SIZES = {
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
}
LISTS = {"model.codec_embedding": "embd", "lm_head": "head"}  # one matrix for each book of codes
LISTED = re.compile(rf"talker\.code_predictor\.({'|'.join(LISTS)})\.(\d+)\.weight")
RES2 = re.compile(r"speaker_encoder\.blocks\.(\d+)\.res2net_block\.blocks\.(\d+)\.conv\.(\w+)")


class SpeechConverter(MediaConverter):
    """The encoder of a voice, and the generator of its sound."""

    encoders = ("audio",)
    projectors: ClassVar[tuple[str, str]] = ("", "")  # of the encoder, and of the generator

    def speech_keys(self, encoder: Mapping[str, Any], generator: Mapping[str, Any]) -> None:
        """Set all keys of an encoder and a generator."""
        self.out.u32("general.file_type", self.file_type)
        for prefix, has, projector, sizes in (
            ("audio", "has_audio_encoder", self.projectors[0], encoder),
            ("gen.audio", "has_gen_audio_encoder", self.projectors[1], generator),
        ):
            ends = {"projector_type": projector, "projection_dim": self.n_embd_text, **sizes}
            self.out.boolean(has, True)
            self.put({f"{prefix}.{key}": value for key, value in ends.items()})


class Qwen3TtsMediaConverter(SpeechConverter):
    classes = ("Qwen3TTSForConditionalGeneration",)
    projectors = ("qwen3tts_spkenc", "qwen3tts_gen")
    keeps = r"speaker_encoder\.|talker\.code_predictor\.|talker\.model\.codec_embedding\.weight"
    names = {
        "talker.model.codec_embedding": f"{CODE}.out_embd",
        "talker.code_predictor.model.norm": f"{CODE}.output_norm",
        "talker.code_predictor.small_to_mtp_projection": f"{CODE}.proj_in",
        **name_blocks("talker.code_predictor.model.layers.{}", {**DECODER_LAYER, **HEAD_NORMS},
                      f"{CODE}.blk.{{}}"),
        "speaker_encoder.blocks.{}.conv": "a.conv1d.{}",
        "speaker_encoder.mfa.conv": "a.conv_out",
        "speaker_encoder.asp.conv": "a.asp_attn",
        "speaker_encoder.asp.tdnn.conv": "a.asp_tdnn",
        "speaker_encoder.fc": "mm.a.fc",
        **{f"speaker_encoder.blocks.{{}}.{module}": f"a.blk.{{}}.{new}"
           for module, new in (("tdnn1.conv", "conv_pw1"), ("tdnn2.conv", "conv_pw2"),
                               ("se_block.conv1", "se_conv1"), ("se_block.conv2", "se_conv2"))},
    }  # fmt: skip
    in_f32 = r"\.(up|dac)\.blk\..*\.conv\.weight|^a\.gen\.code\.blk\..*\.ffn_down\.weight"
    in_f16 = (
        r"wav\.pre_conv\.weight|dac\.(entry|post_conv)\.weight|\.up\.blk\..*\.dwconv\.weight"
        r"|\.dac\.blk\..*\.conv[12]\.weight"
    )

    @property
    def n_embd_text(self) -> int:
        return int(self.need(self.section("talker_config"), "hidden_size"))

    def read_audio(self) -> Config:
        return self.section("speaker_encoder_config")

    def keys(self) -> None:
        found = self.section("talker_config").get("code_predictor_config")
        config = found if isinstance(found, dict) else {}
        encoder = {
            "num_mel_bins": 128, "block_count": 3, "embedding_length": 1536,
            "attention.head_count": 1, "feed_forward_length": 1536, EPSILON: 1e-5,
        }  # fmt: skip
        names = {
            **SIZES, "attention.head_count_kv": "num_key_value_heads", EPSILON: "rms_norm_eps",
        }  # fmt: skip
        self.speech_keys(encoder, {key: self.need(config, n) for key, n in names.items()})

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if match := LISTED.fullmatch(name):
            found = self.gatherer.add(match[1], int(match[2]), array, CODES)
            if found is not None:
                yield f"{CODE}.{LISTS[match[1]]}.weight", stack(found)
        elif match := RES2.fullmatch(name):
            yield f"a.blk.{match[1]}.res2.{match[2]}.{match[3]}", array
        else:
            yield from super().tensors(name, array, layer)

    @cached_property
    def decoder(self) -> dict[str, LazyArray]:
        """Tensors of the subfolder that generate sound."""
        stored = read_safetensors(self.folder.path / TOKENIZER / "model.safetensors")
        return {name: LazyArray.from_stored(t) for name, t in stored.items()}

    def extra(self) -> Tensors:
        found = self.folder.json(f"{TOKENIZER}/config.json").get("decoder_config")
        config = found if isinstance(found, dict) else {}
        for kind, n in (("first", 1), ("rest", CODES)):
            path = f"decoder.quantizer.rvq_{kind}"
            for part in ("input", "output"):
                array = self.take(f"{path}.{part}_proj.weight")
                short = f"{part.removesuffix('put')}_proj"
                yield f"{WAV}.quant.{kind}.{short}.weight", array.reshape(*array.shape[:2])
            books = [self.codebook(f"{path}.vq.layers.{i}._codebook") for i in range(n)]
            yield f"{WAV}.quant.{kind}.codebook.weight", books[0] if n == 1 else stack(books)
        yield from self.pair("pre_conv.conv", "pre_conv")
        yield from self.pair("pre_transformer.input_proj", "tfm.in_proj")
        yield from self.pair("pre_transformer.output_proj", "tfm.out_proj")
        norm = self.take("decoder.pre_transformer.norm.weight")
        yield f"{WAV}.tfm.output_norm.weight", norm
        for i in range(self.need(config, "num_hidden_layers")):
            yield from self.decoder_layer(i)
        for i in range(len(self.need(config, "upsampling_ratios"))):
            for module, new in UPSAMPLING.items():
                yield from self.pair(f"upsample.{i}.{module}", f"up.blk.{i}.{new}")
            yield f"{WAV}.up.blk.{i}.gamma", self.take(f"decoder.upsample.{i}.1.gamma")
        yield from self.sound(len(self.need(config, "upsample_rates")))

    def decoder_layer(self, i: int) -> Tensors:
        """Yield the tensors of a layer before the generator of sound, in the order of llama.cpp."""
        named = {f"{module}.weight": new for module, new in DECODER_LAYER.items()}
        order = [*named.items()]
        (first, last) = SCALES.items()
        for module, new in (*order[:5], first, *order[5:], last):
            array = self.take(f"decoder.pre_transformer.layers.{i}.{module}")
            yield f"{WAV}.tfm.blk.{i}.{new}.weight", array

    def sound(self, n: int) -> Tensors:
        """Yield the tensors of the generator, with n blocks."""
        yield from self.pair("decoder.0.conv", "dac.entry")
        for i in range(n):
            path, to = f"decoder.{i + 1}.block", f"dac.blk.{i}"
            yield from self.snake(f"{path}.0", f"{to}.snake")
            yield from self.pair(f"{path}.1.conv", f"{to}.conv")
            for j in range(3):
                for k in (1, 2):
                    yield from self.snake(f"{path}.{j + 2}.act{k}", f"{to}.res.{j}.act{k}")
                    yield from self.pair(f"{path}.{j + 2}.conv{k}.conv", f"{to}.res.{j}.conv{k}")
        yield from self.snake(f"decoder.{n + 1}", "dac.post_snake")
        yield from self.pair(f"decoder.{n + 2}.conv", "dac.post_conv")

    def take(self, name: str) -> LazyArray:
        """Return a tensor of the subfolder. Raises ModelError if it is missing."""
        if (found := self.decoder.get(name)) is None:
            raise self.refuse((f"{TOKENIZER}/{name}",))
        return found

    def pair(self, module: str, to: str) -> Tensors:
        for part in ("weight", "bias"):
            yield f"{WAV}.{to}.{part}", self.take(f"decoder.{module}.{part}")

    def snake(self, module: str, to: str) -> Tensors:
        """Yield the factors of an activation x + sin(alpha * x) ** 2 / beta, whose logarithms are
        stored."""
        alpha, beta = (self.take(f"decoder.{module}.{part}") for part in ("alpha", "beta"))
        yield f"{WAV}.{to}.alpha", alpha.map(exponential)
        tiny = np.float32(1e-9)
        yield f"{WAV}.{to}.beta", beta.map(lambda x: 1 / (exponential(x) + tiny))

    def codebook(self, path: str) -> LazyArray:
        """Return the means of vectors, whose sums and numbers are stored."""
        total, count = self.take(f"{path}.embedding_sum"), self.take(f"{path}.cluster_usage")

        def make() -> Array:
            return total.read() / np.maximum(count.read(), np.float32(1e-5))[:, None]

        return LazyArray(total.shape, np.float32, make, total.stored)


def exponential(x: Array) -> Array:
    """Return e ** x, rounded once to float32."""
    made: Array = np.exp(x.astype(np.float64)).astype(np.float32)
    return made


MIMI_LAYER = pairs("""
    norm1=ln1 norm2=ln2 self_attn.out_proj=attn_out linear1=ffn_up linear2=ffn_down
    layer_scale_1.scale=ls1.weight layer_scale_2.scale=ls2.weight
""")
MIMI = {"encoder": "a", "decoder": WAV}
LAYERS = {"encoder": "a.blk.{}", "decoder": f"{WAV}.tfm.blk.{{}}"}
STAGES = 3
# Numbers of modules with and without shortcuts, in a stage
PLACES = {"encoder": (1, 3), "decoder": (3, 2)}
SEANET = re.compile(r"mimi\.(encoder|decoder)\.model\.(\d+)(?:\.block\.(\d+))?\.(?:.*\.)?(\w+)")
FLOW = pairs("""
    input_proj=input_proj cond_embed=cond_embd final_layer.linear=final.proj
    final_layer.adaLN_modulation.{}=final.ada time_embed.{}.freqs=time.{}.freqs
    time_embed.{}.mlp.0=time.{}.up time_embed.{}.mlp.2=time.{}.down
    time_embed.{}.mlp.3.alpha=time.{}.norm res_blocks.{}.in_ln=blk.{}.norm
    res_blocks.{}.mlp.0=blk.{}.up res_blocks.{}.mlp.2=blk.{}.down
    res_blocks.{}.adaLN_modulation.1=blk.{}.ada
""")


class PocketTtsMediaConverter(SpeechConverter):
    classes = ("PocketTTSModel",)
    projectors = ("pockettts_spkenc", "pockettts_gen")
    keeps = (
        r"flow_lm\.(speaker_proj_weight|input_linear|emb_|out_eos|flow_net)|mimi\.(downsample\.conv"
        r"|upsample\.convtr|quantizer\.output_proj|(en|de)coder(\.model|_transformer))\b"
    )
    names = {
        "flow_lm.speaker_proj_weight": "a.speaker_proj.weight",
        "flow_lm.input_linear": "a.gen.input_linear",
        "flow_lm.emb_mean": "a.gen.emb_mean",
        "flow_lm.emb_std": "a.gen.emb_std",
        "flow_lm.out_eos": "a.gen.out_eos",
        **{f"flow_lm.flow_net.{module}": f"a.gen.flow.{new}" for module, new in FLOW.items()},
        "mimi.downsample.conv.conv": "a.downsample.conv",
        "mimi.upsample.convtr.convtr": f"{WAV}.upsample",
        "mimi.quantizer.output_proj": f"{WAV}.quant_out",
        **{name: tensor for kind, to in LAYERS.items() for name, tensor in name_blocks(
            f"mimi.{kind}_transformer.transformer.layers.{{}}", MIMI_LAYER, to).items()},
    }  # fmt: skip
    in_f16 = r"\.seanet\.|^a\.downsample\.conv\.weight|^a\.gen\.wav\.upsample\.weight"

    def keys(self) -> None:
        sizes = {key: self.need(self.audio, name) for key, name in SIZES.items()}
        n_layer = sizes.pop("block_count")
        encoder = {"block_count": n_layer, **sizes, EPSILON: 1e-5, "num_mel_bins": 1}
        heads = sizes.pop("attention.head_count")
        generator = {**sizes, "block_count": n_layer, "attention.head_count": heads, EPSILON: 1e-5}
        self.speech_keys(encoder, {**generator, "model_variant": self.folder.path.name})

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if match := SEANET.fullmatch(name):
            kind, number, part, suffix = match.groups()
            yield f"{MIMI[kind]}.seanet.{self.seanet(kind, int(number), part)}.{suffix}", array
        elif name.endswith(".self_attn.in_proj.weight"):
            for part, one in zip("qkv", split_three(name, array), strict=True):
                path = LAYERS["decoder" if "decoder" in name else "encoder"].format(layer)
                yield f"{path}.attn_{part}.weight", one
        elif name == "mimi.quantizer.output_proj.weight":
            yield self.rename(name), array.reshape(*array.shape[:2])
        else:
            yield from super().tensors(name, array, layer)

    def seanet(self, kind: str, number: int, part: str | None) -> str:
        """Return the module of a number in the list of convolutions."""
        last, (residual, scale) = 3 * STAGES + 2, PLACES[kind]
        if number in (0, last):
            return "conv_in" if number == 0 else "conv_out"
        if part is None:
            return f"blk.{(number - scale) // 3}.scale_conv"
        return f"blk.{(number - residual) // 3}.res_conv{1 if part == '1' else 2}"
