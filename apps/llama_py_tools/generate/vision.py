"""Images on the command line: options of llama-mtmd-cli."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llama_py.params.option import Params, option
from llama_py.params.rules import integers
from llama_py.params.texts import words
from llama_py_tools.command.logs import log
from llama_py_tools.command.options import read
from llama_py_tools.command.params import FileParams
from llama_py_tools.models import session

if TYPE_CHECKING:
    from llama_py import Model


class VisionParams(Params):
    """Options of image input."""

    group = "images"

    mmproj: str = option(
        "", "-mm --mmproj", "vision encoder (mmproj) of the model, a GGUF file", metavar="FILE"
    )
    mmproj_auto: bool = option(
        True,
        "--mmproj-auto",
        "use the mmproj file next to the model, in the repository (-hf) or in the folder"
        " (--models-dir)",
        off="--no-mmproj --no-mmproj-auto",
    )
    mmproj_device: str = option(
        "",
        "-mmdev --mmproj-device",
        "device of the vision encoder (default: device of the token embeddings)",
        metavar="DEVICE",
    )
    image: Sequence[str] = option(
        (),
        "--image",
        "images before the first message, separated by commas; without a chat, each replaces a"
        " <__media__> marker in the prompt",
        metavar="FILE",
        parse=words,
        many=True,
        env="",
    )
    image_min_tokens: int = option(
        0,
        "--image-min-tokens",
        "minimum tokens per image, for encoders with dynamic resolution (0: from the model)",
        check=integers(0),
    )
    image_max_tokens: int = option(
        0,
        "--image-max-tokens",
        "maximum tokens per image, for encoders with dynamic resolution (0: from the model)",
        check=integers(0),
    )

    def check(self) -> None:
        """Raise ModelError for images without a vision encoder."""
        from ggml_py.errors import ModelError

        if self.image and not self.mmproj:
            raise ModelError(
                "--image needs a vision encoder; use --mmproj FILE with the mmproj file of the "
                "model"
            )


def load(args: argparse.Namespace, model: Model) -> None:
    """Load the vision encoder that the options name."""
    p = read(args, VisionParams)
    path = p.mmproj
    file = read(args, FileParams)
    if not path and p.mmproj_auto and file.hf_repo:
        from llama_py_tools.models.hub import download_vision_encoder

        path = usable(download_vision_encoder(file))
    if path:
        session.loading()
        model.load_vision(
            path,
            p.mmproj_device or None,
            min_tokens=p.image_min_tokens,
            max_tokens=p.image_max_tokens,
        )


def usable(path: str) -> str:
    """Return a path found next to a model if it is a known encoder; else ""."""
    from ggml_py.errors import GGMLError
    from llama_py.vision.encoder import check_kind

    try:
        if path:
            check_kind(path)
    except (GGMLError, OSError) as e:
        log.warning("images are disabled: %s", e)
        return ""
    return path


def prompt(model: Model, text: str, images: Sequence[str]) -> list[int]:
    """Return the tokens of a text with images; images without a marker are placed first."""
    from llama_py.batch.prompts import MARKER

    lacking = len(images) - text.count(MARKER)
    return model.build_image_prompt(MARKER * lacking + text, images)
