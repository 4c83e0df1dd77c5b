"""Writes the folders of checkpoints: see dev/record/author_checkpoints/__init__.py."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from dev.record.author_checkpoints import experts, latent, quantized, states
from dev.record.tiny_checkpoints import write_folder

GROUPS = (
    latent.deepseeks, latent.glms, latent.kimis, states.mambas, states.granites, states.nemotrons,
    states.recurrents, experts.bailings, experts.hunyuans, experts.mixtures, quantized.checkpoints,
)  # fmt: skip


def main(out: str, *names: str) -> int:
    made = {name: checkpoint for group in GROUPS for name, checkpoint in group().items()}
    for name in names or made:
        config, shapes = made[name]
        folder = Path(out) / name
        shutil.rmtree(folder, ignore_errors=True)
        stored = {k: s if s and isinstance(s[0], str) else ["F32", s] for k, s in shapes.items()}
        write_folder(folder, config, stored)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
