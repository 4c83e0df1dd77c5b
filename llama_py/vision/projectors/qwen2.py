"""Qwen2.5-VL's vision encoder, with window attention (models/qwen2vl.cpp)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.ops import cast, get_rows, reshape
from ggml_py.tensor import Tensor
from ggml_py.types import F16, F32
from llama_py.batch import I32
from llama_py.gguf.keys import Keys, uint
from llama_py.vision.graph import ImageGraph
from llama_py.vision.layers import apply_norm
from llama_py.vision.projectors._qwen import (
    FOUR,
    Merging,
    MergingHParams,
    on_four_axes,
    square_positions,
)

WINDOW = 112  # side in pixels
HIDDEN = float(np.finfo(np.float32).min)


class WindowedVisionHParams(MergingHParams):
    """n_pattern: period of layers with full attention"""

    n_pattern: int = uint("vision.n_wa_pattern")

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if WINDOW // self.patch_size < 2:
            raise keys.error(
                "vision.patch_size",
                f"must be at most {WINDOW // 2}, half of a window of {WINDOW} pixels",
            )

    @property
    def window(self) -> int:
        """Rows of the result on a window's side."""
        return WINDOW // self.patch_size // 2


class Qwen25Eyes(Merging):
    name = "qwen2.5vl_merger"
    HParams = WindowedVisionHParams
    hp: WindowedVisionHParams
    kind = "rms"
    swaps = True

    def build(self, g: ImageGraph) -> Tensor:
        if not self.hp.n_pattern:
            return super().build(g)
        n, n_embd, n_layer = g.n_patches, g.hp.n_embd, g.hp.n_layer
        cur = self.frames(g)
        place, mask = windows(g.nx // 2, g.ny // 2, self.hp.window)
        of_place = np.argsort(place).astype(np.int32)
        at = square_positions(g).reshape(2, -1, FOUR)[:, of_place].reshape(2, -1)
        positions = g.positions("positions", on_four_axes(at))
        if self.pre is not None:
            cur = apply_norm(g, cur, self.pre)
        inside = g.positions("inv_window_idx", of_place)
        seen = g.input("window_mask", F32, mask, n, n)
        seen = cast(seen, F16) if g.flash else seen
        cur = get_rows(reshape(cur, n_embd * FOUR, n // FOUR), inside)
        cur = reshape(cur, n_embd, n, 1)
        masks = [None if (il + 1) % self.hp.n_pattern == 0 else seen for il in range(n_layer)]
        cur = self.merge_patches(g, self.apply_layers(g, cur, positions, masks), None, self.merger)
        back = g.positions("window_idx", place)
        cur = get_rows(reshape(cur, self.n_embd_out, n // FOUR), back)
        return reshape(cur, self.n_embd_out, n // FOUR, 1)


class Qwen25OmniEyes(Qwen25Eyes):
    """Image encoder of a file that also has an audio encoder."""

    name, same_as = "qwen2.5o", Qwen25Eyes.name


def windows(nx: int, ny: int, size: int) -> tuple[I32, npt.NDArray[Any]]:
    """Group the result rows by window. Return each row's place in that order, and the mask of
    patches that see each other (four patches per row): 0, or the lowest float.
    -> [nx * ny], [4 nx ny, 4 nx ny]"""
    y, x = np.divmod(np.arange(nx * ny), nx)
    window = y // size * -(-nx // size) + x // size
    order = np.argsort(window, kind="stable")
    place = np.empty(nx * ny, np.int32)
    place[order] = np.arange(nx * ny)
    of_patch = np.repeat(window[order], FOUR)
    same = of_patch[:, None] == of_patch[None, :]
    return place, np.where(same, np.float32(0), np.float32(HIDDEN))
