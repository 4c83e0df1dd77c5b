"""Base of the converters of all architectures (conversion/base.py: TextModel)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ggml_py.errors import ModelError
from ggml_py.types import BF16, BY_NAME, F16, F32, I64, GGMLType
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.dequantize import restore
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.keys import KeyValues
from llama_py.checkpoint.merge import PartGatherer
from llama_py.checkpoint.metadata import ModelMetadata
from llama_py.checkpoint.model_name import size_label
from llama_py.checkpoint.names import (
    LAYERS,
    LLAMA,
    MEDIA,
    MEDIA_STARTS,
    NUMBER,
    Names,
    find_layer,
    name_layers,
)  # fmt: skip
from llama_py.checkpoint.nvfp4 import take_nvfp4
from llama_py.checkpoint.output import NewTensor, choose_type, count_parameters
from llama_py.checkpoint.rotary import restore_rope
from llama_py.checkpoint.router_scores import EXPERT_COUNTS, SCORE_NAMES, choose_score, score_number
from llama_py.checkpoint.shared_keys import (
    KEYS,
    LATER_KEYS,
    LAYER_COUNTS,
    LOCAL_THETA,
    ORIGINAL,
    PARTIAL,
    THETA,
    YARN,
    Key,
    Keys,
)
from llama_py.checkpoint.stored import StoredModel
from llama_py.checkpoint.values import decay, minus_one, plus_one, undo_decay
from llama_py.checkpoint.vocabulary import Vocabulary

log = logging.getLogger("llama_py")

QUANTIZATION_VERSION = 2  # GGML_QNT_VERSION
# general.file_type, by --outtype
FILE_TYPES: Mapping[str, tuple[int, GGMLType]] = {
    "f32": (0, F32),
    "f16": (1, F16),
    "q8_0": (7, BY_NAME["q8_0"]),
    "bf16": (32, BF16),
}
# ... if some tensors are in blocks, by their type in names of files
BLOCK_FILES = {"MXFP4_MOE": 38, "NVFP4": 39}
OUTTYPES = (*FILE_TYPES, "auto")
UNUSED = (".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq")
# Ends of names, and their replacements
RENAMED = (("e_score_correction_bias", "e_score_correction.bias"), (".dt_bias", ".dt_proj.bias"))
OUTPUT = ("lm_head.weight", "model.lm_head.weight")


@dataclass(frozen=True)
class ConvertOptions:
    """outtype   type of matrices; "auto": the type of the first stored matrix, BF16 or F16
    name      general.name; "": by the model card or the folder
    pre       name of the pre-tokenizer; "": found by its ids
    nextn     False: without layers that draft tokens
    draft     "mtp" or "dspark": only the layers that draft tokens, as a separate file
    overrides values of general.* by full key
    dense     the layers after the pooling as well, of sentence-transformers
    target    folder of the model that a draft model belongs to
    mmproj    the encoders of images and sound, and not the text model
    """

    outtype: str = "auto"
    name: str = ""
    pre: str = ""
    nextn: bool = True
    draft: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    dense: bool = False
    target: Path | None = None
    mmproj: bool = False


class Converter:
    """A checkpoint as key-values and tensors of a GGUF file.

    A subclass declares an architecture:

    arch     general.architecture
    classes  names of the model's classes in transformers
    names    GGUF tensors of the checkpoint's modules; `{}` is the number of the layer
    layers   GGUF tensors of the modules in a layer, added to `names` of the base class
    prefixes  beginnings of tensors' names that only some checkpoints have
    skipped   beginnings of names of tensors that are not converted
    suffixes  ends of names that lack a suffix, and the suffix
    drops_tied_output  the output matrix is not converted if the embeddings are the same
    adds_one  ends of names of weights that are stored less 1
    defaults  values that config.json may lack, since transformers knows them
    has_nextn  checkpoints may have layers that draft tokens, which options can choose
    own_keys   keys that follow the keys of all models, as for `copy`
    needed     names that config.json must have
    tokenizer  its file: tokenizer.json, tokenizer.model, or "either": the latter if it exists
    roles      tokens of tokenizer.json whose role no file names
    endings    ends of tensors' names after the module
    kind       general.type

    and for the way back, from a GGUF file to a checkpoint (export.py):

    exports    model_type in transformers, by class, the usual class first; empty: no exports
    prefers    names in config.json of keys with several names, in place of the first
    constants  values of config.json that the architecture implies
    derived    tensors that the keys of config.json imply
    nfc        the tokenizer normalizes to NFC
    """

    arch: str = ""
    classes: ClassVar[tuple[str, ...]] = ()
    names: Names = LLAMA
    layers: ClassVar[Names] = {}
    prefixes: ClassVar[tuple[str, ...]] = ()
    skipped: ClassVar[tuple[str, ...]] = ()
    suffixes: ClassVar[Mapping[str, str]] = {}
    drops_tied_output: ClassVar[bool] = False
    adds_one: ClassVar[tuple[str, ...]] = ()
    defaults: ClassVar[Mapping[str, Any]] = {}
    has_nextn: ClassVar[bool] = False
    own_keys: ClassVar[Keys] = ()
    needed: ClassVar[tuple[str, ...]] = ()
    tokenizer: ClassVar[str] = "tokenizer.json"
    roles: ClassVar[Mapping[str, str]] = {}
    endings: ClassVar[tuple[str, ...]] = ("weight", "bias")
    kind: ClassVar[str] = "model"
    exports: ClassVar[Mapping[str, str]] = {}
    prefers: ClassVar[tuple[str, ...]] = ("intermediate_size",)
    constants: ClassVar[Mapping[str, Any]] = {}
    derived: ClassVar[tuple[str, ...]] = ("rope_freqs.weight",)
    nfc: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "layers" in cls.__dict__:
            cls.names = {**cls.names, **name_layers(LAYERS, cls.layers)}

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        self.folder, self.options = folder, options
        self.blocks = ""  # type of tensors that remain in blocks, in names of files
        self.full_activations = list[str]()  # tensors that need more than 4-bit activations
        self.gatherer = PartGatherer()  # of tensors that the file stores as one
        self.config: dict[str, Any] = {**self.defaults, **folder.config}
        self.out = KeyValues(self.architecture())
        self.n_layer = self.integer(*LAYER_COUNTS)
        self.rope = self._rope()

    def convert(self) -> list[NewTensor]:
        """Set all keys and return the tensors; their values are computed later."""
        for name in self.needed:
            if self.find(name) is None:
                raise ModelError(
                    f"{self.folder.path / 'config.json'}: {name} is missing; download it again"
                )
        selected = ((self.select(name), t) for name, t in self.folder.tensors.items())
        stored = {name: t for name, t in selected if name is not None}
        file_type, type = self.choose_type(stored)
        made = list[NewTensor]()
        for name, values in self._convert(stored):
            made.append(NewTensor(name, self.choose_tensor_type(name, values, type), values))
        self.check_complete()
        made += [NewTensor(name, I64, array) for name, array in self.integers()]
        if self.blocks and type in (F32, F16, BF16):
            file_type = BLOCK_FILES[self.blocks]
        self.out.text("general.type", self.kind)
        counts = count_parameters(made)
        described = ModelMetadata(
            self.folder, counts.total, self.options.name, self.options.overrides
        )
        described.write(self.out, size_label(*counts))
        self.file_type, self.type = file_type, type
        kind = self.blocks if file_type in BLOCK_FILES.values() else str(type).upper()
        self.file_name = self.make_file_name(described, kind)
        self.keys()
        self.copy(*self.own_keys)
        self.out.u32("general.quantization_version", QUANTIZATION_VERSION)
        if self.full_activations:
            names = sorted(self.full_activations)
            self.out.array("general.tensor_extra.name", names)
            self.out.array("general.tensor_extra.prec_a4", [False] * len(names))
        n_vocab = self.config.get("vocab_size")
        self.vocabulary(Vocabulary(self.folder, self.out, n_vocab, self.options.pre or None))
        return made

    def make_file_name(self, described: ModelMetadata, kind: str) -> str:
        """Return the name of a file without another, which ends with its type."""
        if self.options.draft:
            return f"{self.options.draft}-{described.short_stem}-{kind}.gguf"
        return f"{described.file_stem}-{kind}.gguf"

    def architecture(self) -> str:
        """Return general.architecture, which may depend on config.json."""
        return self.arch

    def choose_tensor_type(self, name: str, array: LazyArray, wanted: GGMLType) -> GGMLType:
        """Return the type of a tensor of the file."""
        return choose_type(name, array, wanted, forced=self.forced_type(name, array))

    def find(self, *names: str) -> Any:
        """Return the value of the first name that config.json has, or None."""
        return next((self.config[n] for n in names if self.config.get(n) is not None), None)

    def integer(self, *names: str) -> int:
        """Return an integer of config.json. Raises ModelError if it is missing, or not one."""
        found = self.find(*names)
        if found is None:
            raise self.refuse(names)
        if type(found) is not int or found < 0:
            name = next(n for n in names if self.config.get(n) is not None)
            raise self.refuse((name,), "an integer")
        return found

    def refuse(self, names: Sequence[str], wanted: str | None = None) -> ModelError:
        """Return the error for a value that config.json lacks, or that is not as wanted.

        wanted   None: it is missing; without "got", the message ends with the value
        """
        what = "is missing; download the file again" if wanted is None else f"must be {wanted}"
        if wanted is not None and ", got " not in wanted:
            what += f", got {str(self.find(*names))[:50]!r}"
        path = self.folder.path / "config.json"
        return ModelError(f"{path}: {' or '.join(names)} {what}")

    @property
    def head_dim(self) -> int:
        """Size of a head: head_dim, or else hidden_size divided by the number of heads."""
        if self.find("head_dim") is not None:
            return self.integer("head_dim")
        return self.integer("hidden_size") // self.integer("num_attention_heads")

    def select(self, name: str) -> str | None:
        """Return the name of a stored tensor for `tensors`; None: it is not converted."""
        if name.startswith(self.skipped):
            return None
        for prefix in self.prefixes:
            name = name.removeprefix(prefix)
        if name.startswith(MEDIA_STARTS) or any(part in name for part in MEDIA):
            return None
        name = name.replace("language_model.", "")
        if self.drops_tied_output and name in OUTPUT and self.config.get("tie_word_embeddings"):
            return None
        for end, renamed in RENAMED:
            if name.endswith(end):
                name = name.removesuffix(end) + renamed
        return name + next((s for end, s in self.suffixes.items() if name.endswith(end)), "")

    def take_blocks(self, stored: dict[str, LazyArray]) -> NamedArrays:
        """Take tensors that the file stores in blocks as the checkpoint does (NVFP4, MXFP4) out of
        `stored`, and yield them. Sets `blocks` to their type in names of files."""
        yield from take_nvfp4(self, stored)

    def forced_type(self, name: str, array: LazyArray) -> GGMLType | None:
        """Return the type of a matrix of the file if it does not depend on --outtype."""
        return None

    def extra(self) -> NamedArrays:
        """Yield tensors of the file that the checkpoint lacks, such as factors of frequencies."""
        yield from ()

    def integers(self) -> NamedArrays:
        """Yield tensors of integers, which follow all others."""
        yield from ()

    def _convert(self, stored: dict[str, LazyArray]) -> NamedArrays:
        yield from self.take_blocks(stored)
        restore(self.folder.path, self.config, stored)
        yield from self.extra()
        for name, array in stored.items():
            if not name.endswith(UNUSED):
                yield from self.tensors(name, array, find_layer(name))

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        """Yield the tensors of the file that a tensor of the checkpoint becomes."""
        if name.endswith(".A_log"):
            array = self.decays(array)
        elif name.endswith(".conv1d.weight"):
            array = array.squeeze()
        elif name.endswith(self.adds_one):
            array = array.map(plus_one)
        yield self.rename(name), array

    def decays(self, array: LazyArray) -> LazyArray:
        """Return the decays of a recurrent layer, whose logarithms are stored."""
        return array.map(decay)

    def rename(self, name: str) -> str:
        """Return a tensor's name in GGUF. Raises ModelError for an unknown name."""
        module, dot, suffix = name.rpartition(".")
        if suffix not in self.endings:
            module, dot, suffix = name, "", ""
        layer = find_layer(name)
        pattern = name if layer is None else NUMBER.sub("{}", name, count=1)
        if (whole := self.names.get(pattern)) is not None:  # its tensor has no suffix
            return whole.format(layer)
        found = self.names.get(module if layer is None else NUMBER.sub("{}", module + ".", 1)[:-1])
        if found is None:
            raise ModelError(
                f"{self.folder.path}: tensor {name[:100]!r} is unknown for {self.arch}; the "
                "files may be of another model"
            )
        return found.format(layer) + dot + suffix

    def restore(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        """Yield the tensors of the checkpoint that become a tensor of the file: the inverse of
        `tensors`."""
        stored = self.restore_name(name)
        if stored.endswith(".A_log"):
            array = array.map(undo_decay)
        elif stored.endswith(".conv1d.weight"):
            array = array.reshape(array.shape[0], 1, -1)
        elif stored.endswith(self.adds_one):
            array = array.map(minus_one)
        yield stored, array

    def restore_name(self, name: str) -> str:
        """Return the name whose `rename` is this one. Raises ModelError for an unknown name."""
        module, dot, suffix = name.rpartition(".")
        if suffix not in ("weight", "bias"):
            module, dot, suffix = name, "", ""
        layer = find_layer(name)
        pattern = module if layer is None else NUMBER.sub("{}", module + ".", 1)[:-1]
        found = self._modules.get(pattern)
        if found is None:
            raise ModelError(
                f"tensor {name[:100]!r} is unknown for {self.arch}, so it cannot be exported"
            )
        return found.format(layer) + dot + suffix

    @cached_property
    def _modules(self) -> Names:
        """Modules by tensor; of several, the first in `names`."""
        return {tensor: module for module, tensor in reversed([*self.names.items()])}

    def unselect(self, name: str) -> str:
        """Return the stored name whose `select` is this one."""
        return name

    def adapters(self) -> Iterator[tuple[str, KeyValues, list[NewTensor]]]:
        """Yield the LoRA adapters of a checkpoint: task, keys, tensors."""
        yield from ()

    def check_complete(self) -> None:
        """Raise ModelError if parts of a tensor are missing. Runs after all tensors."""
        self.gatherer.check_complete(self.folder.path)

    def keys(self) -> None:
        """Set the architecture's keys."""
        out = self.out
        out.u32("block_count", self.n_layer)
        self.copy(*KEYS)
        if self.config.get("is_causal") is False:
            out.boolean("attention.causal", False)
        self._rope_keys()
        self.copy(*LATER_KEYS)
        score = self.find(*SCORE_NAMES)
        if score is None and self.find(*EXPERT_COUNTS):
            score = choose_score(self.config.get("model_type"))
        if score is not None:
            self.set_gating(score)
        if (head_dim := self.config.get("head_dim")) is not None:
            out.u32("attention.key_length", head_dim)
            out.u32("attention.value_length", head_dim)
        out.u32("general.file_type", self.file_type)

    @classmethod
    def choose_class(cls, model: StoredModel) -> str:
        """Return the class of transformers of a file."""
        return next(iter(cls.exports))

    @classmethod
    def restore_config(cls, model: StoredModel) -> dict[str, Any]:
        """Return values of config.json by a file: the inverse of `keys`.

        Raises ModelError for a file that transformers cannot describe.
        """
        found = model.restore((*KEYS, *LATER_KEYS, *cls.own_keys), cls.prefers)
        found["num_hidden_layers"] = model.n_layer
        if (size := model.get("attention.key_length")) is not None:
            found["head_dim"] = size
        found["vocab_size"] = model.n_vocab
        found["tie_word_embeddings"] = not model.has("output.weight")
        return {**found, **cls.restore_rope(model), **cls.constants}

    def copy(self, *keys: Key) -> None:
        """Set keys from config.json.

        A type is one of GGUF; "count": an integer or one for each layer; "windows", from types of
        layers: if each has sliding-window attention. Only a type with `!` at its end makes the
        key necessary.

        Raises ModelError if config.json lacks a necessary key.
        """
        for key, kind, names in keys:
            kind, is_needed = kind.removesuffix("!"), kind.endswith("!")
            value = self.find(*names)
            if value is None and is_needed:
                raise self.refuse(names)
            if value is not None and kind == "count":
                self.out.count(key, value)
            elif value is not None and kind == "windows":
                self.out.array(key, [t == "sliding_attention" for t in value])
            elif value is not None:
                self.out.add(kind, key, value)

    def set_gating(self, score: Any) -> None:
        """Set the function of the router's scores. Raises ModelError for an unknown one."""
        self.out.u32("expert_gating_func", score_number(score))

    def vocabulary(self, v: Vocabulary) -> None:
        """Write the tokenizer's keys."""
        pieces = "tokenizer.model"
        if self.tokenizer == pieces or (self.tokenizer == "either" and v.has(pieces)):
            v.sentencepiece()
        else:
            v.bpe(roles=self.roles)

    def choose_type(self, stored: Mapping[str, LazyArray]) -> tuple[int, GGMLType]:
        """Return general.file_type, and the type of matrices."""
        wanted = self.options.outtype
        if wanted == "auto":
            types = {"BF16": "bf16", "F16": "f16"}
            wanted = next(
                (types[t.stored] for t in stored.values() if t.ndim > 1 and t.stored in types),
                "f16",
            )
        if wanted not in FILE_TYPES:
            raise ModelError(f"outtype must be {', '.join(OUTTYPES)}, got {wanted!r}")
        return FILE_TYPES[wanted]

    def _rope(self) -> dict[str, Any]:
        """Return rope_parameters of transformers 5, from the older keys as well."""
        given = self.config.get("rope_parameters", self.config.get("rope_scaling"))
        found: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
        if "full_attention" in found or "sliding_attention" in found:
            return found
        if (local := self.find(*LOCAL_THETA)) is not None:
            found["sliding_attention"] = {"rope_theta": local}
        for name, value in (
            ("rope_theta", self.find(*THETA)),
            ("rope_type", found.get("type")),
            ("partial_rotary_factor", self.find(*PARTIAL)),
            (ORIGINAL, self.find(ORIGINAL)),
        ):
            if value is not None:
                found.setdefault(name, value)
        return found

    @property
    def full_rope(self) -> Mapping[str, Any]:
        """RoPE of layers that attend to all tokens."""
        found = self.rope.get("full_attention", self.rope)
        return found if isinstance(found, dict) else {}

    def _rope_keys(self) -> None:
        out, rope = self.out, self.full_rope
        kind, factor = rope.get("rope_type"), rope.get("factor")
        if kind in ("linear", "yarn") and factor is not None:
            out.text("rope.scaling.type", kind)
            out.f32("rope.scaling.factor", factor)
            if kind == "yarn":
                self._yarn_keys(rope)
        elif kind in ("su", "longrope"):
            out.text("rope.scaling.type", "longrope")
        if isinstance(sections := self.rope.get("mrope_section"), list):
            out.array("rope.dimension_sections", [*sections, 0, 0, 0, 0][:4])
        if (theta := rope.get("rope_theta")) is not None:
            out.f32("rope.freq_base", theta)
        windowed = self.rope.get("sliding_attention")
        if isinstance(windowed, dict) and (theta := windowed.get("rope_theta")) is not None:
            out.f32("rope.freq_base_swa", theta)

    @classmethod
    def restore_rope(cls, model: StoredModel) -> dict[str, Any]:
        """Return the inverse of the keys of RoPE: rope_theta and rope_parameters."""
        return restore_rope(model)

    def _yarn_keys(self, rope: Mapping[str, Any]) -> None:
        self.out.u32("rope.scaling.original_context_length", rope.get(ORIGINAL))
        for key, names in YARN:
            value = next((rope[n] for n in names if rope.get(n) is not None), None)
            if value is not None:
                self.out.f32(f"rope.scaling.{key}", value)
