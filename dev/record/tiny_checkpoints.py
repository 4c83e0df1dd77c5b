"""Tiny checkpoints with repeatable values: config.json and names of transformers' models, weights
of a random generator. tests/llama_py/test_checkpoint.py converts them, record_checkpoints.py
records llama.cpp's conversions."""

from __future__ import annotations

import json
import lzma
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.models import converter
from llama_py.checkpoint.output import NewTensor, pieces

FILE = Path(__file__).parents[2] / "tests" / "data" / "checkpoints.json.xz"
N_VOCAB = 128
INTEGERS = {"U8": "u1", "I8": "i1", "I32": "<i4", "I64": "<i8", "F8_E4M3": "u1", "F8_E8M0": "u1"}
SPEECH, LOGARITHMS = "speech_tokenizer/", (".alpha", ".beta")
MULTIPLIED = ("talker.text_projection.", "talker.model.text_", "flow_lm.bos_emb", "flow_lm.input_")
GIVEN = ("weight_shape", "g_idx")  # tensors with recorded values


def read_records() -> dict[str, dict[str, Any]]:
    """Return the recorded checkpoints by name: config, tensors (name to dtype and shape), other
    JSON files, and the SHA-256 of the GGUF file in F32 without vocabulary."""
    found: dict[str, dict[str, Any]] = json.loads(lzma.decompress(FILE.read_bytes()))
    return found


def write_folder(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, Any],
    files: Mapping[str, Any] | None = None,
    target: Mapping[str, Any] | None = None,
) -> None:
    """Write a checkpoint with random values. A tensor `SUB/NAME` is in a subfolder.

    files    content of other JSON files, by name
    target   config.json of the model that a draft model belongs to, in the subfolder `target`
    """
    folder.mkdir(parents=True)
    is_mistral = "dim" in config and "architectures" not in config  # Mistral's format
    name, weights = ("params", "consolidated") if is_mistral else ("config", "model")
    configs = {f"{name}.json": config} if config else {}
    for file, content in {**configs, **(files or {})}.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(json.dumps(content))
    if target is not None:
        (folder / "target").mkdir()
        (folder / "target" / "config.json").write_text(json.dumps(target))
    made = dict[str, dict[str, tuple[str, list[int], bytes]]]()
    for name, (dtype, shape, *given) in tensors.items():
        sub, _, own = name.rpartition("/")
        file = f"{sub}/model" if sub else weights
        made.setdefault(file, {})[own] = dtype, shape, values(name, dtype, shape, *given)
    for file, parts in made.items():
        path = folder / f"{file}.safetensors"
        path.parent.mkdir(exist_ok=True)
        write_safetensors(path, parts)


def write_adapter(folder: Path, tensors: Mapping[str, Any]) -> None:
    """Write a LoRA adapter of rank 4 of a model's matrices, except embeddings, routers, layer 1."""
    folder.mkdir(parents=True)
    made = dict[str, tuple[str, list[int], bytes]]()
    for name, (_, shape) in tensors.items():
        module = name.removesuffix(".weight")
        without = ("embed_tokens", "lm_head", "mlp.gate.", "layers.1.")
        if len(shape) == 2 and module != name and not any(part in name for part in without):
            for part, size in (("A", [4, shape[1]]), ("B", [shape[0], 4])):
                key = f"base_model.model.{module}.lora_{part}.weight"
                made[key] = ("F32", size, values(key, "F32", size))
    write_safetensors(folder / "adapter_model.safetensors", made)
    config = {"peft_type": "LORA", "lora_alpha": 8, "r": 4, "base_model_name_or_path": "x/y"}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def values(name: str, dtype: str, shape: list[int], given: list[int] | None = None) -> bytes:
    """Return the bytes of a tensor: given integers, or random values.

    The decays of recurrent layers are integers, since other exponentials differ in the last bit
    between torch and NumPy; matrices that the converter multiplies are small integers.
    """
    if given is not None:
        return np.array(given, INTEGERS[dtype]).tobytes()
    rng = np.random.default_rng(crc32(name.encode()))
    if name.endswith("A_log") or (name.startswith(SPEECH) and name.endswith(LOGARITHMS)):
        return (np.arange(np.prod(shape), dtype=np.float32) % 8).reshape(shape).tobytes()
    if name.endswith("d2t"):  # differences of increasing ids
        return np.sort(rng.integers(0, 4, shape, np.int64)).tobytes()
    if dtype in INTEGERS:  # no NaN
        if dtype == "I32":
            return rng.integers(-(2**31), 2**31, shape, np.int32).tobytes()
        return rng.integers(0, 120, shape, np.uint8).astype(INTEGERS[dtype]).tobytes()
    if name.startswith(MULTIPLIED):
        return rng.integers(-3, 4, shape).astype(np.float32).tobytes()
    floats = rng.standard_normal(shape, np.float32)
    if name.endswith("running_var"):  # plus epsilon, powers of four: exact square roots
        floats = np.float32(4) ** (np.arange(floats.size) % 3).astype(np.float32)
        floats = floats.reshape(shape) - np.float32(1e-5)
    if name.endswith("per_dim_scale"):  # other results of softplus differ in the last bit
        floats = np.where(floats > 0, np.float32(25), np.float32(0))
    if dtype == "BF16":
        return (floats.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return floats.astype(np.float16 if dtype == "F16" else np.float32).tobytes()


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, list[int], bytes]]) -> None:
    """Write a file: names to dtype, shape and bytes."""
    header, at = dict[str, Any](), 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(data for *_, data in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def convert_plain(folder: Path, **options: Any) -> bytes:
    """Return the file that the judge makes: in F32, without drafting layers and tokens."""
    chosen, tensors = plan_plain(folder, **options)
    return b"".join(pieces(chosen.out.stored, tensors))


def plan_plain(folder: Path, **options: Any) -> tuple[Converter, list[NewTensor]]:
    """Return the converter and the tensors of that file."""
    checkpoint = CheckpointFolder(folder)
    is_dspark = options.get("draft") == "dspark"
    kind = converter("DeepseekV4DSparkModel" if is_dspark else checkpoint.model_name)

    def vocabulary(self: Any, v: Any) -> None:
        v.write_none()
        for key in (f"{self.out.arch}.vocab_size", "tokenizer.chat_template"):
            self.out.stored.pop(key, None)
        self.out.u32("vocab_size", N_VOCAB)

    plain = type("Plain", (kind,), {"vocabulary": vocabulary, "classes": ()})
    target = folder / "target" if (folder / "target").is_dir() else None
    given = {"outtype": "f32", "nextn": False, "target": target}
    chosen = plain(checkpoint, ConvertOptions(**given | options))
    return chosen, chosen.convert()
