#!/usr/bin/env python3
"""Record digests of llama.cpp's conversions of tiny checkpoints: tests/data/checkpoints.json.xz.

    pip install torch==2.13.0 transformers==5.23.0 gguf sentencepiece
    python -m dev.compare.transformers_side LLAMA_CPP OUT [NAME ...]
    python -m dev.record.record_checkpoints LLAMA_CPP OUT [NAME ...]
    python -m dev.record.record_checkpoints LLAMA_CPP adapters NAME ...
    python -m dev.record.record_checkpoints LLAMA_CPP whole
    python -m dev.record.record_checkpoints LLAMA_CPP splits NAME
    python -m dev.record.record_checkpoints LLAMA_CPP drafts
    python -m dev.record.record_checkpoints LLAMA_CPP classes

The first command makes the models of transformers in OUT. The second takes their configurations and
tensor names, converts models with other weights (tiny_checkpoints.py), and replaces the entries of
these names. The third records adapters of these models, the fourth whole files
(whole_checkpoints.py), the fifth a model in shards, the sixth models with layers that draft tokens,
the seventh models with other names of their class (variant_checkpoints.py). LLAMA_CPP is a folder
with llama.cpp's source.
"""

from __future__ import annotations

import hashlib
import json
import logging
import lzma
import struct
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dev.compare.transformers_side import convert
from dev.record.tiny_checkpoints import (
    FILE,
    GIVEN,
    INTEGERS,
    read_records,
    write_adapter,
    write_folder,
)
from dev.record.variant_checkpoints import (
    DRAFTS,
    MODES,
    STORED_DRAFTS,
    list_classes,
    rename_class,
    with_drafts,
    with_dspark,
)
from dev.record.whole_checkpoints import PRE, WHOLE, write_whole

LIMITS: list[dict[str, Any]] = [
    {"split_max_tensors": 5},
    {"split_max_size": 40_000},
    {"split_max_tensors": 3, "split_max_size": 100_000},
    {"split_max_tensors": 4, "small_first_shard": True},
    {"split_max_tensors": 1000},
]


def main(llama_cpp: str, out: str, *names: str) -> int:
    logging.disable(logging.WARNING)
    sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]
    entries = read_records() if FILE.exists() else {}
    if out == "adapters":
        return _write(
            entries
            | {f"lora-{name}": _record_adapter(llama_cpp, entries[name], name) for name in names}
        )
    if out == "whole":
        return _write(entries | {f"whole-{name}": _record_whole(name) for name in WHOLE})
    if out == "splits":
        found = {"of": names[0], "splits": _record_splits(entries[names[0]])}
        return _write(entries | {"splits": found})
    if out == "drafts":
        return _write(entries | _record_drafts(entries))
    if out == "classes":
        return _write(entries | {"classes": _record_classes(entries)})
    for name in names or sorted(p.parent.name for p in Path(out).glob("*/config.json")):
        folder = Path(out) / name
        entry = _read(folder)
        with tempfile.TemporaryDirectory() as temporary:
            made = Path(temporary) / name
            write_folder(made, **entry)
            entries[name] = {**entry, "sha256": _digest(made, "ALL_F32")}
            if name.startswith("mmproj"):
                entries[name]["f16"] = _digest(made, "MOSTLY_F16")
                entries[name]["bf16"] = _digest(made, "MOSTLY_BF16")
        print(name, entries[name]["sha256"][:12], flush=True)
    return _write(entries)


def _record_drafts(entries: dict[str, Any]) -> dict[str, Any]:
    """Return records of models with layers that draft tokens: a digest for each mode."""
    found = dict[str, Any]()
    for name, entry in entries.items():
        if name in DRAFTS or name in STORED_DRAFTS:
            parts = {mode: with_drafts(name, entry) for mode in MODES}
            if name == "deepseek4":
                parts = {"mtp": parts["mtp"], "dspark": with_dspark(entry)}
            digests = dict[str, str]()
            for mode, (config, tensors) in parts.items():
                with tempfile.TemporaryDirectory() as temporary:
                    folder = Path(temporary) / name
                    write_folder(folder, config, tensors, target=config)
                    digests[mode] = _digest(folder, "ALL_F32", mode)
                print("drafts", name, mode, digests[mode][:12], flush=True)
            found[f"drafts-{name}"] = {"drafts": name, "sha256": digests}
    return found


def _record_classes(entries: dict[str, Any]) -> dict[str, Any]:
    """Return for other names of classes, of text models and of encoders, the record with the same
    converter and the digest."""
    found = dict[str, Any]()
    for key, (base, name) in list_classes(entries).items():
        entry = entries[base]
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / base
            write_folder(
                folder, *rename_class(entry, name), entry.get("files"), entry.get("target")
            )
            found[key] = {"of": base, "sha256": _digest(folder, "ALL_F32")}
        print("class", name, base, found[key]["sha256"][:12], flush=True)
    return found


def _digest(folder: Path, outtype: str, mode: str = "") -> str:
    """Return the digest of llama.cpp's file of a folder."""
    file = folder.parent / "out.gguf"
    convert(folder, file, outtype, mode)
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _record_adapter(llama_cpp: str, base: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the record of an adapter of a recorded model."""
    with tempfile.TemporaryDirectory() as temporary:
        where = Path(temporary)
        write_folder(where / name, base["config"], base["tensors"])
        write_adapter(where / "adapter", base["tensors"])
        script, file = f"{llama_cpp}/convert_lora_to_gguf.py", where / "out.gguf"
        command = [sys.executable, script, "--base", name, "adapter", "--outfile", file.name]
        subprocess.run(command, cwd=where, check=True, capture_output=True)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
    print("lora", name, digest[:12], flush=True)
    return {"base": name, "sha256": digest}


def _record_whole(name: str) -> dict[str, Any]:
    """Return the record of a file with a vocabulary."""
    base, registered = import_module("conversion.base"), import_module("conversion")
    types = import_module("convert_hf_to_gguf").gguf.LlamaFileType
    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: PRE
    with tempfile.TemporaryDirectory() as temporary:
        folder, file = write_whole(name, Path(temporary)), Path(temporary) / "out.gguf"
        hparams = base.ModelBase.load_hparams(folder, False)
        arch = registered.get_model_architecture(hparams, registered.ModelType.TEXT)
        registered.get_model_class(arch)(folder, types.GUESSED, file).write()
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
    print("whole", name, digest[:12], flush=True)
    return {"whole": name, "sha256": digest}


def _record_splits(base: dict[str, Any]) -> list[dict[str, Any]]:
    """Return limits, names of shards and their digests."""
    found = []
    for limits in LIMITS:
        with tempfile.TemporaryDirectory() as temporary:
            where = Path(temporary)
            write_folder(where / "model", base["config"], base["tensors"])
            convert(where / "model", where / "a.b.gguf", **limits)
            files = {
                f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in where.glob("*.gguf")
            }
        print("splits", limits, len(files), flush=True)
        found.append({"limits": limits, "files": dict(sorted(files.items()))})
    return found


def _write(entries: dict[str, Any]) -> int:
    text = json.dumps(dict(sorted(entries.items())), separators=(",", ":"))
    FILE.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    return 0


def _files(folder: Path) -> dict[str, Any]:
    """Return the JSON files that change a conversion without a vocabulary."""
    names: tuple[str, ...] = ("tokenizer.json", "tekken.json")
    if folder.name.startswith("mmproj"):
        names += ("tokenizer_config.json", "preprocessor_config.json", "processor_config.json",
                  "audio_tokenizer/config.json", "speech_tokenizer/config.json")  # fmt: skip
    return {n: json.loads((folder / n).read_text()) for n in names if (folder / n).exists()}


def _read(folder: Path) -> dict[str, Any]:
    """Return the arguments of write_folder that write this folder."""
    is_mistral = (folder / "params.json").is_file()
    name, weights = ("params", "consolidated") if is_mistral else ("config", "model")
    path = folder / f"{name}.json"
    config = json.loads(path.read_text()) if path.is_file() else {}
    config.pop("_name_or_path", None)
    entry = {"config": config, "tensors": _names(folder / f"{weights}.safetensors")}
    for file in sorted(folder.glob("*/model.safetensors")):
        entry["tensors"] |= {f"{file.parent.name}/{n}": t for n, t in _names(file).items()}
    if files := _files(folder):
        entry["files"] = files
    if (target := folder / "target" / "config.json").is_file():
        entry["target"] = json.loads(target.read_text())
    return entry


def _names(path: Path) -> dict[str, Any]:
    """Return dtype and shape of each tensor of a file, in order; of some also values."""
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + n])
    found = dict[str, Any]()
    for name, entry in header.items():
        if name != "__metadata__":
            found[name] = [dtype := entry["dtype"], entry["shape"]]
            if name.endswith(GIVEN):
                first, last = entry["data_offsets"]
                values = np.frombuffer(data[8 + n + first : 8 + n + last], INTEGERS[dtype])
                found[name].append(values.tolist())
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
