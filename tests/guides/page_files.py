"""The files that commands of README and docs name: small models, adapters, texts, tasks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import PIL.Image

from dev.record.tiny_checkpoints import read_records, write_folder
from dev.record.tiny_checkpoints import write_adapter as write_peft
from dev.record.whole_checkpoints import write_whole
from ggml_cpu import store
from llama_py.gguf.file import GGUFFile
from tests.support import large_models, mcp_server
from tests.support.adapters import pairs, write_adapter
from tests.support.choices import pack_choices
from tests.support.commands import DEMO, ROOT, run, tiny_model
from tests.support.eyes import files_of

VERSE = "ROMEO: But soft, what light through yonder window breaks?\nIt is the east. " * 12
ROLES = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
ENDINGS = ("speak.", "hear the people.", "a.", "be gone and away.")


def write_named(text: str, folder: Path) -> None:
    """Write the files of FILES whose names are words of `text`; `~` is the folder."""
    for name, write in FILES.items():
        if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", text):
            write(folder / name.removeprefix("~/"))


def _gguf(*words: str | Path) -> None:
    done = run("llama-py-gguf", *map(str, words))
    assert done.returncode == 0, done.stderr


def _copy_demo(path: Path) -> None:
    shutil.copy(DEMO, path)


def _write_checkpoint(path: Path) -> None:
    write_whole("qwen3-bpe", path.parent).rename(path)


def _write_vision_checkpoint(path: Path) -> None:
    one = read_records()["mmproj-qwen25vl"]
    write_folder(path, one["config"], one["tensors"], one["files"])


def _write_peft(path: Path) -> None:
    write_peft(path, read_records()["qwen3"]["tensors"])


def _write_model(path: Path) -> None:
    _gguf("set", DEMO, "old.key:u32=1", "-o", path)


def _quantize(path: Path) -> None:
    _gguf("quantize", "--allow-requantize", DEMO, path, path.stem.rpartition("-")[2].upper())


def _write_tiny(name: str, path: Path, *keys: str) -> None:
    """Write a tiny model, with keys of metadata."""
    made = tiny_model(path.parent, name)
    if keys:
        _gguf("set", made, *keys, "--in-place")
    made.replace(path)


def _write_diffusion(path: Path) -> None:
    _write_tiny("llada-dense", path, "tokenizer.ggml.mask_token_id:u32=63")


def _write_encoder(path: Path) -> None:
    """Write a vision encoder, and its text model as model.gguf."""
    text, encoder = files_of("gemma3", path.parent)
    _gguf("set", text, f"tokenizer.chat_template:str={ROLES}", "--in-place")
    text.replace(path.with_name("model.gguf"))
    encoder.replace(path)


def _write_mixture(path: Path) -> None:
    large_models.write(path, "qwen3moe", "moe", large_models.QWEN3MOE, experts="q4_K")


def _write_larger_mixture(path: Path) -> None:
    words = ("--arch", "qwen35moe", "--size", "397b", "--type", "Q4_K_M", "--hole", "--out")
    command = (sys.executable, "-m", "dev.compare.make_bench_model", *words, str(path))
    subprocess.run(command, cwd=ROOT, check=True)


def _write_lora(seed: int, path: Path) -> None:
    """Write an adapter of one matrix of the demo model."""
    name = "blk.0.ffn_down_shexp.weight"
    with GGUFFile.open(DEMO) as file:
        shape = file.tensors[name].ne[1::-1]
    weight = np.random.default_rng(seed).normal(0, 0.02, shape).astype(np.float32)
    write_adapter(path, "qwen35moe", pairs({name: weight}, [name], seed=seed))


def _write_folder_of_models(path: Path) -> None:
    path.mkdir()
    shutil.copy(DEMO, path / "sea-0.6b.gguf")


def _write_project(path: Path) -> None:
    """Write the files of the project that its metadata needs."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, path.parent)


def _write_kernels(path: Path) -> None:
    """Write a cache with kernels of another version."""
    other = path / "cpu" / "023377c6b0329974"
    other.mkdir(parents=True)
    (other / store.MARKER).write_text(f"{store.MARK}znver4, numba 0.67.0\n")
    (other / "x.o").write_bytes(bytes(1000))
    for folder in (path, path / "cpu", other):
        folder.chmod(0o700)


def _write_picture(path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    PIL.Image.fromarray(pixels).save(path)


def _write_lines(lines: Sequence[str], path: Path) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def _write_choices(path: Path) -> None:
    answers = [*ENDINGS]
    path.write_bytes(pack_choices([("Who is there?", answers, 0), ("What is this?", answers, 1)]))


HELLASWAG = ["First Citizen:", "0", *ENDINGS]
WINOGRANDE = [
    "0,The king was taller than Tom so _ was seen first.,king,Tom,1",
    '1,"The crown, which is old, did fit the king as the _ is small.",crown,king,2',
    "2,The end of the file is not _ .,here,there,1",
]


def _write_servers(path: Path) -> None:
    """Write the file of an MCP server."""
    args = [mcp_server.__file__, "plain"]
    data = {"mcpServers": {"small": {"command": sys.executable, "args": args}}}
    path.write_text(json.dumps(data))


# A name in a command: how its file or folder is written. A later one may replace an earlier one.
FILES: dict[str, Callable[[Path], None]] = {
    "Qwen3-0.6B": _write_checkpoint,
    "Qwen2.5-VL-3B-Instruct": _write_vision_checkpoint,
    "my-adapter": _write_peft,
    "model.gguf": _write_model,
    "demo.gguf": _copy_demo,
    "x.gguf": _copy_demo,
    "model-f16.gguf": partial(_write_tiny, "llama-dense"),
    "q4_k_m.gguf": _quantize,
    "demo-q4_k_m.gguf": _quantize,
    "q8_0.gguf": _quantize,
    "mmproj.gguf": _write_encoder,
    "reranker.gguf": partial(_write_tiny, "bert-rank"),
    "llada.gguf": _write_diffusion,
    "qwen3-235b-q4_K.gguf": _write_mixture,
    "m.gguf": _write_larger_mixture,
    "style.gguf": partial(_write_lora, 0),
    "facts.gguf": partial(_write_lora, 1),
    "play.txt": partial(_write_lines, [VERSE]),
    "text.txt": partial(_write_lines, [10 * VERSE]),
    "joy.txt": partial(_write_lines, ["I am glad", "I laugh", "What joy", "Be merry"]),
    "grief.txt": partial(_write_lines, ["I am sad", "I weep", "What woe", "Be sorry"]),
    "hellaswag_val_full.txt": partial(_write_lines, HELLASWAG),
    "winogrande.csv": partial(_write_lines, WINOGRANDE),
    "mcp.json": _write_servers,
    "mmlu.bin": _write_choices,
    "cat.png": _write_picture,
    "a.png": _write_picture,
    "b.png": _write_picture,
    "dog.jpg": _write_picture,
    "~/models": _write_folder_of_models,
    "~/.config/fish/completions": partial(Path.mkdir, parents=True),
    "pip install": _write_project,
    "docs": Path.mkdir,
    "cache": _write_kernels,
}
