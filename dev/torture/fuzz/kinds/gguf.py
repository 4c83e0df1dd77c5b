"""Model files: metadata, tensors and layout; loadable models are run."""

from __future__ import annotations

from pathlib import Path
from random import Random

from dev.torture.fuzz.drive import drive
from dev.torture.fuzz.kind import Case, Kind
from dev.torture.fuzz.models import starts
from dev.torture.fuzz.mutate import mutate


class Models(Kind):
    """model files of every architecture"""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.starts = list(starts())

    def case(self, rng: Random) -> Case:
        start = rng.choice(self.starts)
        words, image = "", start.image.copy()
        if rng.random() < 0.45:
            words, image = start.resized(rng)
        if not words or rng.random() < 0.2:
            words = "; ".join([*filter(None, [words]), mutate(rng, image, start.keys)])
        path = self.folder / "m.gguf"

        def run() -> str:
            path.write_bytes(image.bytes())
            return drive(path, rng)

        return Case(f"{start.arch}-{start.variant}: {words}", run)
