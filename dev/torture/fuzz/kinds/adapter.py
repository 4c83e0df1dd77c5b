"""LoRA adapters and control vectors."""

from __future__ import annotations

from pathlib import Path
from random import Random

import llama_py
from dev.torture.fuzz import numbers
from dev.torture.fuzz.gguf_bytes import Tensor
from dev.torture.fuzz.image import Image, Items, Pair, pairs_of
from dev.torture.fuzz.kind import Case, Kind
from dev.torture.fuzz.models import memories
from dev.torture.fuzz.mutate import mutate
from llama_py.adapters.control_vector import load_directions
from llama_py.context import Context
from llama_py.model import Model

KEYS = (
    "general.type",
    "adapter.type",
    "general.architecture",
    "adapter.lora.alpha",
    "adapter.alora.invocation_tokens",
    "adapter.lora.task_name",
)
NAMES = (
    "direction.0",
    "direction.-1",
    "direction.99999999999",
    "direction.\u00b2",
    "x.lora_a",
    ".lora_b",
    "output_norm.weight.lora_a",
)


def adapter(model: Model, rng: Random) -> Image:
    """Return an adapter for some matrices of a model."""
    image = Image(
        pairs_of(
            {
                "general.type": "adapter",
                "adapter.type": "lora",
                "general.architecture": model.arch,
                "adapter.lora.alpha": 8.0,
            }
        )
    )
    if rng.random() < 0.3:
        image.set(Pair(KEYS[4], "arr", Items("u32", [3, 4])))
    matrices = [i for i in model.file.tensors.values() if i.ne[1] > 1 and i.ne[0] > 4]
    rank = rng.choice((1, 4))
    for info in rng.sample(matrices, min(3, len(matrices))):
        n_in, n_out, *more = info.ne
        table = info.name == "token_embd.weight"
        a = (rank, n_out, *more) if table else (n_in, rank, *more)
        b = (rank, n_in if table else n_out, *more)
        for end, ne in (("lora_a", a), ("lora_b", b)):
            n = ne[0] * ne[1] * ne[2]
            image.tensors.append(Tensor(f"{info.name}.{end}", ne, 0, b"\0\0\0\x3d" * n))
    return image


def vector(model: Model, rng: Random) -> Image:
    """Return a control vector with directions of some layers."""
    image = Image(pairs_of({"general.architecture": "controlvector"}))
    n = model.hparams.n_embd
    for il in range(1, rng.randint(2, 4)):
        image.tensors.append(Tensor(f"direction.{il}", (n,), 0, b"\0\0\0\x3d" * n))
    return image


class Adapters(Kind):
    """LoRA adapters and control vectors"""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.models = [llama_py.load(path, device="cpu") for path in memories(folder)]

    def case(self, rng: Random) -> Case:
        model = rng.choice(self.models)
        kind = rng.choice((adapter, adapter, vector))
        image = kind(model, rng)
        words = mutate(rng, image, KEYS)
        if rng.random() < 0.2 and image.tensors:
            t = rng.choice(image.tensors)
            t.name = rng.choice(NAMES)
            words += f"; a tensor is called {t.name!a}"
        path = self.folder / "a.gguf"
        scale = rng.choice((1.0, 0.0, -1.0, 1e30, *numbers.FLOATS))

        def run() -> str:
            path.write_bytes(image.bytes())
            del model.adapters[:]
            with Context(model, n_ctx=32, n_threads=1, n_seq_max=2) as ctx:
                if kind is adapter:
                    ctx.set_adapters({model.load_adapter(path): scale})
                else:
                    ctx.set_control_vector(load_directions([(path, scale)]))
                if model.has_encoder:
                    ctx.encode([1, 2, 3])
                n = ctx.decode([1, 2, 3, 4, 5], "all").size
                return f"{n + ctx.decode([1]).size} logits"

        return Case(f"{model.arch}: {kind.__name__}, scale {scale}: {words}", run)
