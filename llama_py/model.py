"""A model file ready to be used: weights on devices, tokenizer, and contexts made from them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ggml_py.backend import Device
from llama_py.chat import ChatTemplate
from llama_py.context import Context
from llama_py.gguf_file import GGUFFile
from llama_py.hparams import HParams
from llama_py.models import architecture
from llama_py.placement import Placement, devices_in_use, overrides
from llama_py.readers import readers_of
from llama_py.tokenizer import Tokenizer
from llama_py.weights import Progress, Weights

log = logging.getLogger("llama_py")


class Model:
    """A loaded GGUF model.

    file           the open file: its metadata and tensors
    architecture   the blocks that graphs are built of
    hparams        its hyperparameters
    placement      the devices in use; layer_devices: that of each layer, at the end of the output
    sizes          bytes of weights by device name
    n_params, n_bytes     of the loaded tensors
    """

    def __init__(
        self, path: str | Path | GGUFFile,
        device: str | Device | Sequence[str | Device] | Placement = "cpu", *, n_gpu_layers: int = -1, tensor_overrides: Mapping[str, str] | None = None,
        n_cpu_moe: int = 0, tensor_split: Sequence[float] = (), load_mtp: bool = False,
        progress: Progress | None = None,
    ) -> None:  # fmt: skip
        """device: one or several; with several, the last is the host (see llama_py.placement).

        n_gpu_layers      layers that the others have, the output being one; -1: all
        tensor_overrides  device name by regular expression of weights' names
        n_cpu_moe         the experts of so many layers, from the first, stay on the host
        tensor_split      how the layers are shared by the others; default: by free memory
        load_mtp          also load the NextN layers, which draft tokens ahead
        progress          called as progress(done, total, tensor name), in bytes

        Raises GGUFError, UnknownArchitecture, HParamsError, WeightsError, or BackendError; the
        first four before anything is allocated.
        """
        self.file = GGUFFile.open(path) if isinstance(path, str | Path) else path
        if not isinstance(device, Placement):
            devices = devices_in_use(device)
            rules = overrides(tensor_overrides or {}, n_cpu_moe, devices)
            device = Placement(devices, n_gpu_layers, rules, tuple(tensor_split))
        self.placement = device
        self._load(load_mtp, progress)

    def _load(self, load_mtp: bool, progress: Progress | None) -> None:
        kind = architecture(self.file.architecture)
        self.hparams: HParams = kind.HParams(self.file.metadata, kind.arch)
        self.layer_devices = self.placement.layers(self.hparams.n_layer_all)
        weights = Weights(self.file.tensors, str(self.file.path))
        self.architecture = kind(self.hparams, weights, load_mtp)
        weights.finish()
        readers = readers_of(self.architecture, weights.all)
        weights.place(self.placement.device_of(self.layer_devices), readers, progress)
        self.sizes = weights.sizes
        self.n_params, self.n_bytes = weights.n_params, weights.n_bytes
        self._log_load()

    def _log_load(self) -> None:
        n, n_all = self.placement.n_offloaded(self.hparams.n_layer_all), len(self.layer_devices)
        if self.placement.offload:
            if n:
                log.info("load_tensors: offloading output layer to GPU")
            log.info("load_tensors: offloading %d repeating layers to GPU", max(n - 1, 0))
            log.info("load_tensors: offloaded %d/%d layers to GPU", n, n_all)
        for name, size in self.sizes.items():
            log.info("load_tensors: %12s model buffer size = %8.2f MiB", name, size / 2**20)

    @property
    def arch(self) -> str:
        return self.architecture.arch

    @property
    def devices(self) -> tuple[Device, ...]:
        """Those in use; the last is the host."""
        return self.placement.devices

    @property
    def device_names(self) -> str:
        return ",".join(d.name for d in self.devices)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_metadata(self.file.metadata)

    @cached_property
    def chat_template(self) -> ChatTemplate | None:
        """The file's own template; None if it has none."""
        t = self.tokenizer
        if t.chat_template is None:
            return None
        bos, eos = ("" if id is None else t.vocab.texts[id] for id in (t.bos, t.eos))
        return ChatTemplate(t.chat_template, bos, eos)

    def context(self, n_ctx: int | None = None, **options: Any) -> Context:
        """A context of n_ctx cells; options are the fields of `llama_py.ContextParams`."""
        return Context(self, n_ctx=n_ctx, **options)

    def __repr__(self) -> str:
        return f"<Model {self.arch} {self.file.path} on {self.device_names}>"
