"""Models in several parts: keys that contradict each other, parts that are missing or others'."""

from __future__ import annotations

from pathlib import Path
from random import Random

from dev.torture.fuzz import numbers
from dev.torture.fuzz.drive import drive
from dev.torture.fuzz.image import Image, Pair
from dev.torture.fuzz.kind import Case, Kind
from dev.torture.fuzz.models import starts
from dev.torture.fuzz.mutate import mutate

KEYS = ("split.no", "split.count", "split.tensors.count")


def parts_of(image: Image, n: int) -> list[Image]:
    """Return the shards in llama-gguf-split's form: the first has the model's metadata."""
    found = []
    for no in range(n):
        part = image.copy() if no == 0 else Image()
        part.tensors = [
            t for i, t in enumerate(image.copy().tensors) if i * n // len(image.tensors) == no
        ]
        for key, value in zip(KEYS, (no, n, len(image.tensors)), strict=True):
            part.set(Pair(key, "u16" if key != KEYS[2] else "i32", value))
        found.append(part)
    return found


class Splits(Kind):
    """models in several files"""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.start = next(starts())

    def case(self, rng: Random) -> Case:
        n = rng.choice((2, 3))
        parts = parts_of(self.start.image, n)
        names = [f"m-{no + 1:05d}-of-{n:05d}.gguf" for no in range(n)]
        told = [self._change(rng, parts, names) for _ in range(rng.choice((1, 1, 2)))]
        given = rng.randrange(n)
        opened = names[given]

        def run() -> str:
            for old in self.folder.glob("m-*"):
                old.unlink()
            for name, part in zip(names, parts, strict=True):
                (self.folder / name).write_bytes(part.bytes())
            return drive(self.folder / opened, rng)

        return Case(f"part {given} of {n}: {'; '.join(told)}", run)

    def _change(self, rng: Random, parts: list[Image], names: list[str]) -> str:
        i = rng.randrange(len(parts))
        what = rng.randrange(6)
        if what < 3:
            pair = Pair(rng.choice(KEYS), *numbers.scalar(rng, rng.randrange(4)))
            parts[i].set(pair)
            return f"part {i}: {pair}"
        if what == 3:
            names[i] = rng.choice(
                ("m-00009-of-00009.gguf", "m-00001-of-00001.gguf", "m-x.gguf", names[0])
            )
            return f"part {i} is called {names[i]}"
        if what == 4:
            j = rng.randrange(len(parts))
            parts[i], parts[j] = parts[j], parts[i]
            return f"parts {i} and {j} are exchanged"
        return f"part {i}: {mutate(rng, parts[i], [*KEYS, *self.start.keys])}"
