"""Tiny encoders of images: a small file of every projector, the same bytes everywhere, for tests.

A file of this folder, named after the projector, has one dictionary by the projector's name:

    TINY = {"name": TinyEyes(keys={"vision.block_count": 2, ...})}

The projector declares the tensors; values are computed from their names (dev.tiny_models).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dev import tiny_models as texts
from dev.tiny_models import Tiny
from dev.tiny_models._file import gguf
from dev.tiny_models._invent import Invented, values
from llama_py.models import architecture
from llama_py.vision.hparams import PREFIX
from llama_py.vision.projectors import projector
from llama_py.weights import Weights


@dataclass(frozen=True)
class TinyEyes(Tiny):
    """A tiny vision encoder for tests.

    sizes   width and height of the test images
    text    its tiny text model; None: the text model of the encoder `like`, or any
    """

    sizes: Sequence[tuple[int, int]] = ((50, 40),)
    text: tuple[str, str] | None = None
    like: str = ""


# Base values of many encoders.
SIZES: dict[str, Any] = {
    "vision.embedding_length": 32,
    "vision.feed_forward_length": 48,
    "vision.block_count": 2,
    "vision.attention.head_count": 2,
    "vision.attention.layer_norm_epsilon": 1e-6,
    "vision.projection_dim": 64,
    "vision.image_size": 32,
    "vision.patch_size": 4,
    "vision.image_mean": [0.5, 0.4, 0.6],
    "vision.image_std": [0.5, 0.6, 0.4],
    "use_gelu": True,
}
# Optional tensors of transformers to omit: for plain ones, with a gated feed-forward, and
# with queries, keys and values in one matrix.
_NONE = ("*.attn_?_norm.*", "*_post_norm.*", "*.ls?.*", "*.out_scale.*", "v.pre_ln.*")
SIGLIP = ("*.attn_qkv.*", "*.ffn_gate.*", *_NONE)
GATED = ("*.attn_qkv.*", *_NONE)
JOINT = ("*.ffn_gate.*", *_NONE)
MEAN = {"*.ln?.weight": 1.0, "*_ln.weight": 1.0, "*.ls?.weight": 1.0, "*.out_scale.weight": 1.0}


def every() -> dict[str, TinyEyes]:
    """Return the encoders by the names of their projectors."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    return {k: v for name in names for k, v in import_module(f"{__name__}.{name}").TINY.items()}


def metadata(name: str, tiny: Tiny) -> dict[str, Any]:
    """Return the metadata of the file."""
    keys = {"has_vision_encoder": True, "projector_type": name, **tiny.keys}
    return {"general.architecture": PREFIX, **{f"{PREFIX}.{k}": v for k, v in keys.items()}}


def tensors(name: str, tiny: Tiny) -> Mapping[str, NDArray[Any]]:
    """Return all tensors as arrays in reversed (NumPy's) order of dimensions."""
    tiny = replace(tiny, mean={**MEAN, **tiny.mean})
    infos, kind = Invented(tiny), projector(name)
    kind(kind.HParams(metadata(name, tiny)), Weights(infos, f"tiny {name}"))
    shapes = {n: infos[n].ne for n in sorted(infos.keys())}
    return {n: np.asarray(values(tiny, n, ne)).reshape(ne[::-1]) for n, ne in shapes.items()}


def text_of(tiny: TinyEyes) -> tuple[str, str]:
    """Return architecture and variant of the encoder's tiny text model."""
    if tiny.like:
        return text_of(every()[tiny.like])
    n_embd = tiny.keys["vision.projection_dim"]
    return tiny.text or next(case for case in texts.every() if _takes(case, n_embd))


def _takes(case: tuple[str, str], n_embd: int) -> bool:
    """Return True if a text model is a plain one with an embedding size of `n_embd`."""
    found, kind = texts.find(*case), architecture(case[0])
    hp = kind.HParams(texts.metadata(case[0], found), case[0])
    plain = found.familiar and hp.causal_attn and hp.n_pos_per_embd == 1 and not hp.n_expert
    return plain and hp.n_embd_inp == n_embd and kind.gtypes == ("decoder",)


def write(name: str, folder: Path, tiny: Tiny | None = None) -> Path:
    """Write the file of an encoder, F32."""
    tiny = tiny or every()[name]
    path = folder / f"mmproj-{name}.gguf"
    path.write_bytes(gguf(metadata(name, tiny), tensors(name, tiny)))
    return path
