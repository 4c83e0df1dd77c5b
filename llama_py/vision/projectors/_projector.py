"""Base class of image encoders: sizes, blocks, graph, and image preprocessing.

A file of this folder defines subclasses of `Projector`, each with a `name`: the value of
clip.projector_type in files. No other module uses the names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ModelError
from ggml_py.tensor import Tensor
from llama_py.vision.decode import MAX_PIXELS
from llama_py.vision.graph import ImageGraph
from llama_py.vision.hparams import VisionHParams
from llama_py.vision.resize import U8, Size, align_size, fit
from llama_py.weights import Weights

F32 = npt.NDArray[np.float32]
AnyHParams = VisionHParams  # within the class that name is the projector's own


class Projector(ABC):
    """The blocks of an encoder, and a builder of their graphs.

    same_as   another encoder with the same blocks, if only the name differs
    HParams   the class of its hyperparameters
    Graph     the graph class for its blocks
    resize    filter for resizing images, one of `resize.FILTERS`
    begin, end  text before and after an image, special tokens included
    n_embd_out  dimensions of an image token
    """

    name: ClassVar[str]
    same_as: ClassVar[str] = ""
    HParams: ClassVar[type[AnyHParams]] = VisionHParams
    Graph: ClassVar[type[ImageGraph]] = ImageGraph
    resize: ClassVar[str] = "bicubic"
    begin: ClassVar[str] = ""
    end: ClassVar[str] = ""
    hp: AnyHParams
    n_embd_out: int

    def __init__(self, hp: AnyHParams, w: Weights) -> None:
        self.hp = hp
        self.declare(w)

    @abstractmethod
    def declare(self, w: Weights) -> None:
        """Make the blocks, which declare their tensors; set n_embd_out."""

    @abstractmethod
    def build(self, g: ImageGraph) -> Tensor:
        """Build the image tokens, [n_embd_out, n_tokens]."""

    def prepare(self, image: U8) -> list[F32]:
        """Return the images to compute, in the text model's order, F32 [height, width, 3]. By
        default the image, centered in a square of the fixed size."""
        side = self.hp.image_size
        return [self.normalize_pixels(fit(image, (side, side), self.resize))]

    def normalize_pixels(self, image: U8) -> F32:
        """Scale pixels as in training."""
        hp, f32 = self.hp, np.float32
        mean, std = np.array([hp.image_mean, hp.image_std], f32)
        found: F32 = (image.astype(f32) / f32(255) - mean) / std
        return found

    def example(self) -> Size:
        """Return width and height of an example image."""
        return self.hp.image_size, self.hp.image_size

    def n_tokens(self, width: int, height: int) -> int:
        """Return the number of tokens of a computed image."""
        return (width // self.hp.step) * (height // self.hp.step)

    def grid(self, width: int, height: int) -> Size:
        """Return columns and rows of the tokens, for text models with several position axes."""
        return self.n_tokens(width, height), 1

    def sees_all(self, n_embd: int) -> bool:
        """Return True if a text model with this n_embd attends to all tokens of an image from
        each."""
        return False


class Dynamic(Projector):
    """An encoder of images of any size.

    min_tokens, max_tokens  limits of the tokens per image
    """

    least: int
    most: int

    def limit(self, least: int, most: int) -> None:
        """Limit the number of tokens of an image; 0: as in training."""
        self.least = least or self.hp.min_tokens
        self.most = most or self.hp.max_tokens

    def example(self) -> Size:
        return 2 * self.hp.step, 2 * self.hp.step

    def prepare(self, image: U8) -> list[F32]:
        height, width = image.shape[:2]
        hp = self.hp
        size = align_size((width, height), hp.step, hp.pixels(self.least), hp.pixels(self.most))
        if size[0] * size[1] > MAX_PIXELS:
            raise ModelError(
                f"the resized image has {size[0]} x {size[1]} pixels, more than {MAX_PIXELS}; "
                "use a smaller image or a smaller min_tokens"
            )
        return [self.normalize_pixels(fit(image, size, self.resize))]
