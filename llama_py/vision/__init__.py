"""Image input for text models: an encoder (--mmproj) computes image tokens that replace text
tokens.

    model = llama_py.load("model.gguf")
    model.load_vision("mmproj.gguf")
    print(model.chat("What is this?", images=["cat.png"]))

Reading order: `image` (pixels of a file), `resize`, `projectors` (one file per family: its image
preprocessing, and its graph of `layers` and `vit`), `encoder` (weights and memory), `prompt` (text
with images, and their processing by a context), `messages` (images in conversations).
"""

from __future__ import annotations

from llama_py.vision.encoder import ImageEncoder
from llama_py.vision.image import Image

__all__ = ["Image", "ImageEncoder"]
