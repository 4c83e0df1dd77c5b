"""Base of the converters of encoders of images and sound (conversion/base.py: MmprojModel)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, ClassVar

from ggml_py.errors import ModelError
from ggml_py.types import F16, F32, GGMLType
from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.keys import KeyValues
from llama_py.checkpoint.merge import PartGatherer
from llama_py.checkpoint.metadata import ModelMetadata
from llama_py.checkpoint.output import choose_type
from llama_py.checkpoint.vocabulary import Vocabulary

LAYER_COUNTS = (
    "n_layers", "num_hidden_layers", "n_layer", "num_layers", "depth", "layers", "encoder_layers",
    "vt_num_hidden_layers",
)  # fmt: skip
WIDTH = ("hidden_size", "width", "vt_hidden_size")
FEED_FORWARD = ("intermediate_size", "vt_intermediate_size")
HEADS = ("num_attention_heads", "num_heads", "heads", "vt_num_attention_heads")
Sizes = Mapping[str, tuple[str, ...]]
# Keys of each encoder, and their names in its configuration
VISION_SIZES: Sizes = {
    "image_size": ("image_size",),
    "patch_size": ("patch_size",),
    "embedding_length": WIDTH,
    "feed_forward_length": FEED_FORWARD,
    "block_count": LAYER_COUNTS,
    "attention.head_count": HEADS,
}
AUDIO_SIZES: Sizes = {
    "embedding_length": ("hidden_size",),
    "feed_forward_length": ("intermediate_size",),
    "block_count": LAYER_COUNTS,
    "attention.head_count": ("num_attention_heads",),
}
FLOATS = ("epsilon", "swiglu_clamp", "rope.freq_base")
EPSILON = "attention.layer_norm_epsilon"
GELU, SILU = "use_gelu", "use_silu"
Config = dict[str, Any]
Renames = tuple[tuple[str, str], ...]
Tensors = Iterator[tuple[str, LazyArray]]


class MediaConverter(Converter):
    """The encoders of a model, and their projectors to its embeddings, as one file.

    encoders   "vision", "audio", or both
    keeps      regular expression that a converted tensor's name begins with
    drops      regular expression that it does not contain
    renames    regular expressions and their replacements in names, before `keeps`
    vision_defaults, audio_defaults  values that config.json may lack, since transformers knows
               them
    in_f32, in_f16  regular expressions in names of the file: matrices of this type
    not_bf16   the same: matrices in F32, or in F16 if --outtype is
    """

    arch = "clip"
    kind = "mmproj"
    encoders: tuple[str, ...] = ("vision",)
    keeps: ClassVar[str] = ""
    drops: ClassVar[str] = ""
    renames: ClassVar[Renames] = ()
    vision_defaults: ClassVar[Mapping[str, Any]] = {}
    audio_defaults: ClassVar[Mapping[str, Any]] = {}
    in_f32: ClassVar[str] = ""
    in_f16: ClassVar[str] = ""
    not_bf16: ClassVar[str] = r"\.patch_(embd|merger)\.weight"

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        self.folder, self.options = folder, options
        self.blocks, self.full_activations, self.n_layer = "", list[str](), 0
        self.gatherer = PartGatherer()
        self.whole: Config = deepcopy(folder.whole_config)
        self.out = KeyValues(self.arch)
        self.vision, self.audio = Config(), Config()
        self.processor = self._read_processor()
        self.encoders = self.find_encoders()
        if "vision" in self.encoders:
            self.vision = self.read_vision()
        if "audio" in self.encoders:
            self.audio = self.read_audio()
        self.config = self.vision or self.audio

    def _read_processor(self) -> Config:
        """Return the settings of the images' processing, of both files that may have them."""
        found = Config()
        for file, inner in (
            ("preprocessor_config.json", "media_proc_cfg"),
            ("processor_config.json", "image_processor"),
        ):
            stored = self.folder.json(file)
            nested = stored.get(inner)
            found |= {**stored, **(nested if isinstance(nested, dict) else {})}
        return found

    def section(self, *names: str) -> Config:
        """Return an object of config.json, without its empty values.

        Raises ModelError if no name is one.
        """
        for name in names:
            found = self.whole.get(name)
            if isinstance(found, dict):
                return {k: v for k, v in found.items() if v is not None}
        path = self.folder.path / "config.json"
        raise ModelError(
            f"{path}: {' or '.join(names)} is missing; the checkpoint has no such encoder"
        )

    def find_encoders(self) -> tuple[str, ...]:
        """Return the kinds of encoders that the checkpoint has."""
        return self.encoders

    def read_vision(self) -> Config:
        """Return the configuration of the vision encoder."""
        return {**self.vision_defaults, **self.section("vision_config")}

    def read_audio(self) -> Config:
        """Return the configuration of the audio encoder."""
        return {**self.audio_defaults, **self.section("whisper_config", "audio_config")}

    @property
    def n_embd_text(self) -> int:
        """Size of the text model's embeddings."""
        text = self.whole.get("text_config")
        merged = {**self.whole, **text} if isinstance(text, dict) else self.whole
        return int(self.need(merged, "hidden_size", "n_embd"))

    def need(self, config: Mapping[str, Any], *names: str) -> Any:
        """Return the first value that a configuration has. Raises ModelError without one."""
        found = next((config[n] for n in names if config.get(n) is not None), None)
        if found is None:
            raise self.refuse(names)
        return found

    def process(self, name: str) -> Any:
        """Return a setting of the images' processing. Raises ModelError if it is missing."""
        found = self.processor.get(name)
        if found is None:
            path = self.folder.path / "preprocessor_config.json"
            raise ModelError(f"{path}: {name} is missing; download the file of the model")
        return found

    def select(self, name: str) -> str | None:
        for old, new in self.renames:
            name = re.sub(old, new, name)
        is_kept = re.match(self.keeps, name) and not (self.drops and re.search(self.drops, name))
        return name if is_kept and "language_model." not in name else None

    def choose_tensor_type(self, name: str, array: LazyArray, wanted: GGMLType) -> GGMLType:
        def has(pattern: str) -> bool:
            return bool(pattern and re.search(pattern, name))

        forced = (
            F32 if has(self.in_f32)
            else F16 if has(self.in_f16)
            else (F16 if wanted is F16 else F32) if has(self.not_bf16)
            else None
        )  # fmt: skip
        return choose_type(name, array, wanted, forced=forced)

    def keys(self) -> None:
        self.out.u32("general.file_type", self.file_type)
        if "vision" in self.encoders:
            self.vision_keys()
        if "audio" in self.encoders:
            self.audio_keys()

    def vision_keys(self) -> None:
        """Set the keys that all vision encoders have."""
        self.out.boolean("has_vision_encoder", True)
        self.put({"vision.projection_dim": self.n_embd_text})
        self.put({f"vision.{k}": self.need(self.vision, *n) for k, n in VISION_SIZES.items()})
        self.put({f"vision.{name}": self.process(name) for name in ("image_mean", "image_std")})

    def audio_keys(self) -> None:
        """Set the keys that all audio encoders have."""
        self.out.boolean("has_audio_encoder", True)
        self.put({"audio.projection_dim": self.n_embd_text})
        self.put({f"audio.{k}": self.need(self.audio, *n) for k, n in AUDIO_SIZES.items()})

    def put(self, values: Mapping[str, Any]) -> None:
        """Set keys with the types of their values; numbers are U32, or F32 by the key's name."""
        for key, value in values.items():
            if isinstance(value, list | tuple):
                self.out.array(key, value)
            elif isinstance(value, str | bool):
                self.out.add("str" if isinstance(value, str) else "bool", key, value)
            else:
                self.out.add("f32" if key.endswith(FLOATS) else "u32", key, value)

    def put_activation(self, name: Any, others: bool = True) -> None:
        """Set the key of an activation function, "gelu" or "silu".

        others  False: raise ModelError for another
        """
        key = {"gelu": GELU, "silu": SILU}.get(str(name).lower())
        if key is not None:
            self.out.boolean(key, True)
        elif not others:
            raise self.refuse(("hidden_act",), f"gelu or silu, got {str(name)[:50]!r}")

    def make_file_name(self, described: ModelMetadata, kind: str) -> str:
        return f"mmproj-{described.short_stem}-{kind}.gguf"

    def vocabulary(self, v: Vocabulary) -> None:
        """The file has no vocabulary."""


def split_frames(name: str, array: LazyArray) -> Tensors:
    """Yield the matrices for each of several frames of a patch embedding,
    [n_out, channels, frames, height, width]."""
    if array.ndim != 5:
        raise ModelError(
            f"{name} must be [n_out, channels, frames, height, width], got {list(array.shape)}"
        )
    n_out, n_channels, n_frames, *sides = array.shape
    for i in range(n_frames):
        one = array.rows(i, i + 1, 2).reshape(n_out, n_channels, *sides)
        yield f"v.patch_embd.weight{f'.{i}' if i else ''}", one


def split_three(name: str, array: LazyArray) -> list[LazyArray]:
    """Split the rows of queries, keys and values."""
    if not array.ndim or array.shape[0] % 3:
        raise ModelError(
            f"{name} must have rows of queries, keys and values, a multiple of 3, got "
            f"{list(array.shape)}"
        )
    return array.split([array.shape[0] // 3] * 3)


def to_pixels(array: LazyArray, patch_size: int) -> LazyArray:
    """Return a matrix for pixels in rows, [n_out, height * width * channels], as a convolution's
    weights: [n_out, channels, height, width]."""
    return array.reshape(array.shape[0], patch_size, patch_size, -1).transpose(0, 3, 1, 2)


def add_dims(array: LazyArray, n: int) -> LazyArray:
    """Add dimensions of size 1 at the end."""
    return array.reshape(*array.shape, *[1] * n)
