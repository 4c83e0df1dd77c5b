"""Results of libmtmd for images, through llama-cpp-python: nodes, image tokens, chunks, logits.

A recording is two files in tests/data/vision: `NAME.npz` (rows and logits) and `NAME.json.xz`
(origin, node lists, chunks).
"""

from __future__ import annotations

import ctypes
import json
import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dev.record.golden.engines import N_BATCH, N_SEQ
from dev.record.golden.store import fingerprint
from dev.tiny_vision import TinyEyes
from ggml_py.errors import GGMLError
from ggml_py.inspection.dump import Record
from llama_py_tools.graph.peer import FLASH_ATTN, Peer, _log
from llama_py_tools.graph.peer_nodes import PeerRecorder

DATA = Path(__file__).parents[3] / "tests" / "data" / "vision"
TEXTS = ("ab <__media__>cd", "x<__media__>yz <__media__> ef")

Floats = NDArray[np.float32]
Chunk = list[int] | dict[str, int]  # tokens, or an image's n_tokens, nx, ny


def image(width: int, height: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return an image that is the same on every machine: gradients with noise."""
    x, y = np.arange(width)[None, :, None], np.arange(height)[:, None, None]
    slopes = x * np.array([3, 1, 7]) + y * np.array([1, 5, 2])
    raw = np.random.Philox(key=seed).random_raw(width * height * 3) % 64
    return ((slopes + raw.reshape(height, width, 3).astype(np.int64)) % 256).astype(np.uint8)


class RealEyes:
    """Text model with a vision encoder, in llama.cpp.

    nodes  of all graphs of the encoder, if enabled
    """

    def __init__(
        self,
        text: Path,
        mmproj: Path,
        *,
        flash: bool = True,
        nodes: bool = False,
        min_tokens: int = -1,
        max_tokens: int = -1,
        n_ctx: int = N_SEQ,
        exact: bool = False,
    ) -> None:
        """Load the models. exact: the text model does not round."""
        from llama_cpp import mtmd_cpp as mtmd

        self.mtmd: Any = mtmd
        how = "off" if exact else "on"
        self.peer = Peer(
            str(text),
            n_ctx=n_ctx,
            n_batch=N_BATCH,
            n_ubatch=N_BATCH,
            flash_attn=how,
            cache="f32" if exact else "f16",
            n_threads=1,
        )
        mtmd.mtmd_log_set(_log(self.peer.api), None)
        self.nodes: list[Record] = []
        p = mtmd.mtmd_context_params_default()
        p.use_gpu, p.warmup, p.print_timings, p.n_threads = False, False, False, 1
        p.flash_attn_type = FLASH_ATTN["on" if flash else "off"]
        p.image_min_tokens, p.image_max_tokens = min_tokens, max_tokens
        if nodes:
            self._recorder = PeerRecorder(
                self.peer.api, lambda record, _: self.nodes.append(record), None
            )
            p.cb_eval = self._recorder.callback
        self.ctx = mtmd.mtmd_init_from_file(str(mmproj).encode(), self.peer.model, p)
        if not self.ctx:
            raise GGMLError(f"libmtmd cannot load {mmproj}")

    def __enter__(self) -> RealEyes:
        return self

    def __exit__(self, *_: object) -> None:
        self.mtmd.mtmd_free(self.ctx)
        self.peer.__exit__()

    def _chunks(self, text: str, images: Sequence[NDArray[np.uint8]]) -> Any:
        mtmd, raw = self.mtmd, text.encode()
        bitmaps = []
        for one in images:
            data = np.ascontiguousarray(one)
            pointer = data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
            bitmaps.append(mtmd.mtmd_bitmap_init(one.shape[1], one.shape[0], pointer))
        given = mtmd.mtmd_input_text()
        given.text, given.add_special, given.parse_special = raw, True, True
        if hasattr(given, "text_len"):
            given.text_len = len(raw)
        chunks = mtmd.mtmd_input_chunks_init()
        array = (mtmd.mtmd_bitmap_p_ctypes * len(bitmaps))(*bitmaps)
        code = mtmd.mtmd_tokenize(self.ctx, chunks, ctypes.byref(given), array, len(bitmaps))
        for bitmap in bitmaps:
            mtmd.mtmd_bitmap_free(bitmap)
        if code:
            raise GGMLError(f"libmtmd cannot process the prompt: {code}")
        return chunks

    def chunks(self, text: str, images: Sequence[NDArray[np.uint8]]) -> list[Chunk]:
        """Return the chunks of a text with markers."""
        mtmd, chunks = self.mtmd, self._chunks(text, images)
        found: list[Chunk] = []
        for i in range(mtmd.mtmd_input_chunks_size(chunks)):
            one = mtmd.mtmd_input_chunks_get(chunks, i)
            if mtmd.mtmd_input_chunk_get_type(one) == mtmd.MTMD_INPUT_CHUNK_TYPE_TEXT:
                n = ctypes.c_size_t()
                ids = mtmd.mtmd_input_chunk_get_tokens_text(one, ctypes.byref(n))
                found.append([int(ids[k]) for k in range(n.value)])
            else:
                tokens = mtmd.mtmd_input_chunk_get_tokens_image(one)
                found.append(
                    {
                        "n_tokens": mtmd.mtmd_input_chunk_get_n_tokens(one),
                        "nx": mtmd.mtmd_image_tokens_get_nx(tokens),
                        "ny": mtmd.mtmd_image_tokens_get_ny(tokens),
                    }
                )
        mtmd.mtmd_input_chunks_free(chunks)
        return found

    def encode(self, one: NDArray[np.uint8]) -> list[Floats]:
        """Return the rows [n_tokens, n_embd] of each part of an image."""
        mtmd, chunks = self.mtmd, self._chunks(mtmd_marker(self.mtmd), [one])
        n_embd = self.peer.api.llama_model_n_embd_inp(self.peer.model)
        found = []
        for i in range(mtmd.mtmd_input_chunks_size(chunks)):
            chunk = mtmd.mtmd_input_chunks_get(chunks, i)
            if mtmd.mtmd_input_chunk_get_type(chunk) != mtmd.MTMD_INPUT_CHUNK_TYPE_TEXT:
                if mtmd.mtmd_encode_chunk(self.ctx, chunk):
                    raise GGMLError("libmtmd cannot encode the image")
                n = mtmd.mtmd_input_chunk_get_n_tokens(chunk)
                rows = mtmd.mtmd_get_output_embd(self.ctx)
                found.append(np.ctypeslib.as_array(rows, (n, n_embd)).copy())
        mtmd.mtmd_input_chunks_free(chunks)
        return found

    def logits(self, text: str, images: Sequence[NDArray[np.uint8]], n: int = 3) -> Floats:
        """Return logits [n, n_vocab] of a prompt's last token, then of n - 1 fixed tokens."""
        chunks, past = self._chunks(text, images), ctypes.c_int32(0)
        code = self.mtmd.mtmd_helper_eval_chunks(
            self.ctx, self.peer.ctx, chunks, 0, 0, N_BATCH, True, ctypes.byref(past)
        )
        self.mtmd.mtmd_input_chunks_free(chunks)
        if code:
            raise GGMLError(f"libmtmd cannot compute the prompt: {code}")
        rows = [self.peer.logits(1)]
        rows += [self.peer.decode([3 + i])[None] for i in range(n - 1)]
        return np.concatenate(rows)


def mtmd_marker(mtmd: Any) -> str:
    marker: bytes = mtmd.mtmd_default_marker()
    return marker.decode()


def images_of(tiny: TinyEyes, n: int) -> list[NDArray[np.uint8]]:
    """Return n test images in the encoder's sizes."""
    return [image(*tiny.sizes[i % len(tiny.sizes)], seed=i) for i in range(n)]


def key(size: tuple[int, int], flash: bool) -> str:
    return f"{size[0]}x{size[1]}.{'flash' if flash else 'plain'}"


def recorded(name: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the recording of an encoder."""
    about = json.loads(lzma.decompress((DATA / f"{name}.json.xz").read_bytes()))
    return about, dict(np.load(DATA / f"{name}.npz"))


def record(name: str, text: Path, mmproj: Path, tiny: TinyEyes) -> int:
    """Record one encoder; return the recording's size in bytes."""
    arrays: dict[str, NDArray[Any]] = {}
    about: dict[str, Any] = {"gguf": fingerprint(mmproj), "nodes": {}}
    for size in tiny.sizes:
        for flash in (False, True):
            with RealEyes(text, mmproj, flash=flash, nodes=True) as real:
                for i, rows in enumerate(real.encode(image(*size))):
                    arrays[f"{key(size, flash)}.{i}"] = rows
                about["nodes"][key(size, flash)] = [plain(r) for r in real.nodes]
    with RealEyes(text, mmproj, flash=False, exact=True) as real:
        about["chunks"] = [real.chunks(t, images_of(tiny, t.count("<__media__>"))) for t in TEXTS]
    for i, t in enumerate(TEXTS):
        with RealEyes(text, mmproj, flash=False, exact=True) as real:
            arrays[f"logits.{i}"] = real.logits(t, images_of(tiny, t.count("<__media__>")))
    DATA.mkdir(parents=True, exist_ok=True)
    packed = lzma.compress(json.dumps(about, separators=(",", ":")).encode(), preset=9)
    (DATA / f"{name}.json.xz").write_bytes(packed)
    np.savez_compressed(DATA / f"{name}.npz", **arrays)
    return len(packed) + (DATA / f"{name}.npz").stat().st_size


def plain(record: Record) -> Record:
    """Return a node without the number of its graph."""
    return {k: v for k, v in record.items() if k != "dec"}
