"""Image encoder of a file (--mmproj) on a device: images in, image tokens out (clip.cpp)."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ggml_py.backend import CompileOptions, Device, SupportsKernelCache, set_tensor
from ggml_py.errors import HParamsError, ModelError, ShapeError
from ggml_py.plan import Plan
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import FLAG_OUTPUT, Tensor
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.fingerprint import fingerprint
from llama_py.graph.outputs import read_rows
from llama_py.support.resource import Resource
from llama_py.vision.graph import ImageGraph
from llama_py.vision.image import Image
from llama_py.vision.projectors import Dynamic, projector
from llama_py.vision.projectors._projector import F32
from llama_py.weights import Weights
from llama_py.weights.placement import devices_in_use

log = logging.getLogger("llama_py")

N_GRAPHS = 4  # cached graphs, by image size
KEPT_BYTES = 2**28  # limit of cached embeddings


class ImagePart(NamedTuple):
    """A preprocessed image, or a part of one.

    pixels  F32 [height, width, 3];  key  identifies equal pixels for caching
    """

    pixels: F32
    key: bytes

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the image part."""
        height, width, _ = self.pixels.shape
        return width, height


class ImageEncoder(Resource):
    """An image encoder with its weights on devices.

        with ImageEncoder("mmproj.gguf") as encoder:
            parts = encoder.encode(Image.open("cat.png"))  # each F32 [n_tokens, n_embd_out]

    file        the open file
    projector   the blocks that build graphs
    flash_attn  attention is one node with keys and values in F16, like in llama.cpp
    sizes       bytes of weights by device name
    """

    def __init__(
        self,
        path: str | Path | GGUFFile,
        device: str | Device | Sequence[str | Device] = "cpu",
        *,
        flash_attn: bool = True,
        min_tokens: int = 0,
        max_tokens: int = 0,
        watch: Callable[[Tensor], None] | None = None,
    ) -> None:
        """Load the image encoder of a file.

        min_tokens, max_tokens   limits of tokens per image of dynamic size; 0: as in training
        watch   called with each node's tensor

        Raises GGUFError, UnknownArchitecture, HParamsError, WeightsError, ModelError for a file
        that is no encoder of images, or BackendError.
        """
        self.file = path if isinstance(path, GGUFFile) else GGUFFile.open(path)
        kind = projector(_name(self.file))
        weights = Weights(self.file.tensors, str(self.file.path))
        self.projector = kind(kind.HParams(self.file.metadata), weights)
        if isinstance(self.projector, Dynamic):
            self.projector.limit(min_tokens, max_tokens)
        weights.skip(*self.file.tensors)  # tensors of other encoders and unused tensors
        weights.finish()
        self.flash_attn = flash_attn
        self.devices = devices_in_use(device)
        self._weights = weights
        self._place()
        self.sizes = weights.sizes
        self._watch = watch
        self._sched = Scheduler(
            list(self.devices), CompileOptions(fuse=watch is None, many=True), watch
        )
        self._graphs: OrderedDict[tuple[int, int], tuple[ImageGraph, Plan]] = OrderedDict()
        self._kept: OrderedDict[bytes, F32] = OrderedDict()
        self._log()

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.file)

    @property
    def n_embd(self) -> int:
        """Channels of a row."""
        return self.projector.n_embd_out

    def parts(self, image: Image) -> list[ImagePart]:
        """Split an image into the parts that are computed, in the text model's order."""
        prepared = self.projector.prepare(image.pixels)
        # The result also depends on the encoder and on its limits.
        keys = (f"{self._fingerprint} {i} {p.shape}".encode() for i, p in enumerate(prepared))
        return [ImagePart(p, image.digest + key) for p, key in zip(prepared, keys, strict=True)]

    def encode(self, image: Image) -> list[F32]:
        """Return the image tokens F32 [n_tokens, n_embd], one array per part."""
        return [self.rows(part) for part in self.parts(image)]

    def rows(self, part: ImagePart) -> F32:
        """Return the image tokens of a part, F32 [n_tokens, n_embd]. Recent results are cached."""
        computing = self.computing(part)
        try:
            while True:
                next(computing)
        except StopIteration as e:
            found: F32 = e.value
            return found

    def computing(self, part: ImagePart) -> Generator[None, None, F32]:
        """Compute `rows` in steps; between them others may use the device, but not this encoder."""
        rows = self._kept.pop(part.key, None)
        if rows is None:
            rows = yield from self._compute(part.pixels)
        self._kept[part.key] = rows
        while sum(kept.nbytes for kept in self._kept.values()) > KEPT_BYTES:
            self._kept.popitem(last=False)
        return rows

    def prepare(self) -> None:
        """Compile the kernels for images."""
        self._plan_graph(*self.projector.example())

    def _compute(self, pixels: F32) -> Generator[None, None, F32]:
        height, width, _ = pixels.shape
        g, plan = self._plan_graph(width, height)
        set_tensor(g.inputs["inp_raw"], pixels.transpose(2, 0, 1))
        for name, values in g.values.items():
            if g.inputs[name].buffer is not None:
                set_tensor(g.inputs[name], values)
        yield from plan.run_in_parts()
        assert g.result is not None
        return read_rows(g.result, self.projector.n_tokens(width, height))

    def graph(self, width: int, height: int) -> ImageGraph:
        """Build a graph for an image of this size, without memory."""
        g = self.projector.Graph(self.projector.hp, width, height, self.flash_attn)
        g.result = g.expand(self.projector.build(g))
        return g

    def close(self) -> None:
        """Give memory and file back."""
        self._graphs.clear()
        self._kept.clear()
        self._weights.release()
        self.file.close()

    def __repr__(self) -> str:
        names = ",".join(d.name for d in self.devices)
        return f"<{type(self).__name__} {self.projector.name} {self.file.path} on {names}>"

    def _plan_graph(self, width: int, height: int) -> tuple[ImageGraph, Plan]:
        found = self._graphs.get((width, height))
        if found is None:
            g = self.graph(width, height)
            log.debug("graph of %d x %d pixels: %d nodes", width, height, len(g.gf.nodes))
            t = g.result
            while t is not None:
                t.flags |= FLAG_OUTPUT
                t = t.view_src
            found = self._graphs[width, height] = g, self._sched.plan(g.gf)
            while len(self._graphs) > N_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end((width, height))
        return found

    def _place(self) -> None:
        """Place the weights on their device, which gets the nodes that read each weight."""
        readers: dict[int, list[Tensor]] = {id(t): [] for t in self._weights.all_tensors}
        try:
            nodes = self.graph(*self.projector.example()).gf.nodes
        except ShapeError as e:
            raise HParamsError(
                f"{self.file.path}: sizes do not match ({e}); convert the model again"
            ) from e
        for node in nodes:
            for src in {id(t) for t in node.src if t is not None}:
                if src in readers:
                    readers[src].append(node)
        first = self.devices[0]
        if isinstance(first, SupportsKernelCache):
            first.begin({info.type.name for info in self.file.tensors.values()})
        self._weights.place(lambda t, nodes: first, readers)

    def _log(self) -> None:
        hp = self.projector.hp
        log.info(
            "vision: %s, %d layers of %d dimensions, embeddings of length %d; %.2f MiB",
            self.projector.name,
            hp.n_layer,
            hp.n_embd,
            self.n_embd,
            sum(self.sizes.values()) / 2**20,
        )


def check_kind(path: str | Path) -> None:
    """Raise GGUFError, ModelError or UnknownArchitecture unless the file is a known image encoder;
    its tensors are not read."""
    file = GGUFFile.open(path)
    try:
        projector(_name(file))
    finally:
        file.close()


def _name(file: GGUFFile) -> str:
    """Return the name of a file's image encoder; ModelError without one."""
    m = file.metadata
    if m.get("clip.has_vision_encoder") is not True:
        has_audio = m.get("clip.has_audio_encoder") is True
        what = "it is an audio encoder" if has_audio else "clip.has_vision_encoder is missing"
        raise ModelError(
            f"{file.path}: not a vision encoder: {what}; use the mmproj file of a vision model"
        )
    name = m.get("clip.projector_type") or m.get("clip.vision.projector_type")
    if not isinstance(name, str):
        raise ModelError(f"{file.path}: clip.projector_type is missing; convert the model again")
    return name
