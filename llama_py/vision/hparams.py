"""Hyperparameters of a vision encoder, from its file's metadata (clip.cpp:load_hparams)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ggml_py.errors import HParamsError
from llama_py.gguf.keys import DeclaredKeys, Field, Keys, as_float, flag, number, uint
from llama_py.hparams import MAX_LAYERS

PREFIX = "clip"  # prefix of the keys
MAX_SIDE = 8192  # maximum side of a computed image, in pixels
MAX_PATCH = 65535
MAX_STEP = 4096  # maximum side in pixels of the square of one embedding


def colours(key: str) -> Any:
    """Return a field of three numbers for red, green and blue; more are ignored."""
    return Field(key, as_float, count=lambda _: 3, longer=True)


class VisionHParams(DeclaredKeys):
    """Hyperparameters of an encoder.

    n_merge     side of the square of patches that are merged to one embedding
    min_tokens, max_tokens  limits of the tokens per image with dynamic resolution; 0: fixed size
    n_embd_head  dimensions of a head
    activation  "gelu", "silu" or "gelu_quick"
    rope_theta  base of the RoPE frequencies
    """

    min_tokens: ClassVar[int] = 0
    max_tokens: ClassVar[int] = 0
    rope_theta: ClassVar[float] = 10000.0

    n_embd: int = uint("vision.embedding_length", least=1)
    n_head: int = uint("vision.attention.head_count", least=1)
    n_head_kv: int = uint("vision.attention.head_count_kv", lambda hp: hp.n_head, least=1)
    n_embd_head: int = uint("vision.attention.head_dim", lambda hp: hp.n_embd // hp.n_head)
    n_ff: int = uint("vision.feed_forward_length")
    n_layer: int = uint("vision.block_count", most=MAX_LAYERS)
    n_embd_out: int = uint("vision.projection_dim")
    eps: float = number("vision.attention.layer_norm_epsilon", least=0)
    image_size: int = uint("vision.image_size", most=MAX_SIDE)
    patch_size: int = uint("vision.patch_size", least=1, most=MAX_PATCH)
    use_gelu: bool = flag("use_gelu", False)
    use_silu: bool = flag("use_silu", False)
    image_mean: tuple[float, ...] = colours("vision.image_mean")
    image_std: tuple[float, ...] = colours("vision.image_std")
    n_merge: int = uint("vision.projector.scale_factor", 1, least=1, most=MAX_PATCH)

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        keys = Keys(metadata, PREFIX)
        super().__init__(keys)
        self.load(keys)
        self._check(keys)

    def load(self, keys: Keys) -> None:
        """Set hyperparameters that a field cannot express."""

    @property
    def activation(self) -> str:
        return "gelu" if self.use_gelu else "silu" if self.use_silu else "gelu_quick"

    @property
    def step(self) -> int:
        """Pixels of a side that become one embedding."""
        return self.patch_size * self.n_merge

    @property
    def n_side(self) -> int:
        """Patches on a side of an image of `image_size`."""
        return self.image_size // self.patch_size

    def pixels(self, n_tokens: int) -> int:
        """Return the number of pixels for n_tokens embeddings."""
        return n_tokens * self.step**2

    def _check(self, keys: Keys) -> None:
        if self.use_gelu and self.use_silu:
            raise keys.error("use_silu", "must be false if use_gelu is true")
        if self.step > MAX_STEP:
            why = (
                f"{self.step} pixels per side of an embedding exceed the maximum of {MAX_STEP}; "
                "convert the model again"
            )
            raise self.refuse("vision.patch_size", why)
        if 0 in self.image_std:
            raise keys.error(
                "vision.image_std", "items must not be 0, because pixels are divided by them"
            )
        if not self.n_layer:
            return
        if self.n_head_kv != self.n_head:
            raise keys.error(
                "vision.attention.head_count_kv", f"must be head_count = {self.n_head}"
            )
        if self.n_embd_head * self.n_head != self.n_embd:
            raise keys.error(
                "vision.attention.head_count",
                f"must divide embedding_length = {self.n_embd} into heads of equal size",
            )

    def refuse(self, key: str, why: str) -> HParamsError:
        """Return an error about a key, for an encoder's own checks."""
        return HParamsError(f"{PREFIX}.{key}: {why}")
