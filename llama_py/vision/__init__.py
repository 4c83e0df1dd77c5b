"""Image input for text models: an encoder (--mmproj) computes image tokens that replace text
tokens.

    model = llama_py.load("model.gguf")
    model.load_vision("mmproj.gguf")
    print(model.chat("What is this?", images=["cat.png"]))

Read in this order: `image` (what is read), `resize`, `projectors` (one file a family: what is done
to an image, and its graph of `layers` and `vit`), `encoder` (weights and memory), `prompt` (text
with images, and how a context reads it), `messages` (images in conversations).
"""

from __future__ import annotations

from llama_py.vision.encoder import ImageEncoder
from llama_py.vision.image import Image

__all__ = ["Image", "ImageEncoder"]
