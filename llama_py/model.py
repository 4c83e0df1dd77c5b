"""A model file ready to be used: weights on a device, tokenizer, and contexts made from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ggml_py.backend import Device
from llama_py.chat import ChatTemplate
from llama_py.context import Context
from llama_py.gguf_file import GGUFFile
from llama_py.hparams import HParams
from llama_py.models import load_model
from llama_py.params import ModelParams
from llama_py.placement import Placement, devices_in_use, overrides
from llama_py.tokenizer import Tokenizer


class Model:
    """A loaded GGUF model. Made by `llama_py.load`.

    file   the open file: its metadata and tensors
    arch_model   the weights and graphs, of the class its architecture has in `llama_py.models`
    """

    def __init__(
        self, path: str | Path, device: str | Device | Sequence[str | Device] = "cpu",
        **options: Any,
    ) -> None:  # fmt: skip
        """options are the fields of ModelParams."""
        p = ModelParams(device=device, **options)
        self.file = GGUFFile.open(path)
        devices = devices_in_use(p.device)
        rules = overrides(p.tensor_overrides, p.n_cpu_moe, devices)
        where = Placement(devices, p.n_gpu_layers, rules, tuple(p.tensor_split))
        self.arch_model = load_model(self.file, where, load_mtp=p.load_mtp, progress=p.progress)

    @property
    def devices(self) -> tuple[Device, ...]:
        """Those in use; the last is the host."""
        return self.arch_model.placement.devices

    @property
    def device_names(self) -> str:
        return ",".join(d.name for d in self.devices)

    @property
    def arch(self) -> str:
        return self.arch_model.arch

    @property
    def hparams(self) -> HParams:
        return self.arch_model.hparams

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
        ctx = Context(self.arch_model, n_ctx=n_ctx, **options)
        ctx.find_tokenizer = lambda: self.tokenizer  # a file may be run without
        return ctx

    def __repr__(self) -> str:
        return f"<Model {self.arch} {self.file.path} on {self.device_names}>"
