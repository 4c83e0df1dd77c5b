"""A model file ready to be used: weights on devices, tokenizer, and contexts made from them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict

from llama_py.batch import F32
from llama_py.chat import ChatTemplate
from llama_py.context import Context
from llama_py.conversation import Conversation, Message
from llama_py.embed import embed
from llama_py.generate import Piece, stream
from llama_py.gguf_file import GGUFFile
from llama_py.hparams import HParams
from llama_py.models import architecture
from llama_py.params import AnswerParams, ContextParams, ModelParams, Progress
from llama_py.placement import Placement, devices_in_use, overrides
from llama_py.prefix import Prefix
from llama_py.readers import readers_of
from llama_py.signature import describe, takes
from llama_py.tokenizer import Tokenizer
from llama_py.weights import Weights

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ggml_py.backend import Device

log = logging.getLogger("llama_py")

DEMO = Path(__file__).parent / "data" / "demo.gguf"
N_CTX_LEAST = 2048  # cells of the context that a model makes for itself


class LoadOptions(TypedDict, total=False):
    """The fields of ModelParams but the device."""

    n_gpu_layers: int
    tensor_overrides: Mapping[str, str]
    n_cpu_moe: int
    tensor_split: Sequence[float]
    load_mtp: bool
    progress: Progress | None


class Model:
    """A loaded GGUF model.

        with llama_py.Model("model.gguf") as model:
            print(model.generate("Once upon a time", max_tokens=64))

    file           the open file: its metadata and tensors
    architecture   the blocks that graphs are built of
    hparams        its hyperparameters
    placement      the devices in use; layer_devices: that of each layer, at the end of the output
    sizes          bytes of weights by device name
    n_params, n_bytes     of the loaded tensors
    """

    def __init__(
        self, path: str | Path | GGUFFile | None = None,
        device: str | Device | Sequence[str | Device] | Placement = "cpu",
        **options: Unpack[LoadOptions],
    ) -> None:  # fmt: skip
        """path: None for the bundled demo model; device: one or several, the last being the host
        (see llama_py.placement); options are the fields of ModelParams.

        Raises GGUFError, UnknownArchitecture, HParamsError, WeightsError, or BackendError; the
        first four before anything is allocated.
        """
        p = ModelParams(**options)
        path = DEMO if path is None else path
        self.file = GGUFFile.open(path) if isinstance(path, str | Path) else path
        if not isinstance(device, Placement):
            devices = devices_in_use(device)
            rules = overrides(p.tensor_overrides, p.n_cpu_moe, devices)
            device = Placement(devices, p.n_gpu_layers, rules, tuple(p.tensor_split))
        self.placement = device
        self._own: Prefix | None = None
        self._load(p)

    def _load(self, p: ModelParams) -> None:
        kind = architecture(self.file.architecture)
        self.hparams: HParams = kind.HParams(self.file.metadata, kind.arch)
        self.layer_devices = self.placement.layers(self.hparams.n_layer_all)
        weights = Weights(self.file.tensors, str(self.file.path))
        self.architecture = kind(self.hparams, weights, p.load_mtp)
        weights.finish()
        readers = readers_of(self.architecture, weights.all)
        weights.place(self.placement.device_of(self.layer_devices), readers, p.progress)
        self._weights = weights
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
        """A context of n_ctx cells, None for what the model was trained with; options are the
        fields of ContextParams."""
        return Context(self, n_ctx=n_ctx, **options)

    def tokenize(
        self, text: str, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """The ids of a text; see Tokenizer.tokenize."""
        return self.tokenizer.tokenize(text, add_special, parse_special)

    def detokenize(self, ids: Sequence[int], special: bool = False) -> str:
        """The text of ids; see Tokenizer.detokenize."""
        return self.tokenizer.detokenize(ids, special)

    @takes(AnswerParams)
    def generate(self, prompt: str | Sequence[int], **options: Any) -> str:
        """The text that follows a prompt; options are the fields of AnswerParams.

        What the prompt has in common with the one before is not computed again. Raises ContextError
        if it is longer than what the model was trained with.
        """
        return "".join(piece.text for piece in self.stream(prompt, **options))

    @takes(AnswerParams)
    def stream(self, prompt: str | Sequence[int], **options: Any) -> Iterator[Piece]:
        """`generate`, piece by piece."""
        return self._answer(prompt, AnswerParams(**options))

    def _answer(self, prompt: str | Sequence[int], p: AnswerParams) -> Iterator[Piece]:
        ids = self.tokenize(prompt) if isinstance(prompt, str) else list(prompt)
        prefix = self._prefix(len(ids) + max(p.max_tokens, 0))
        rest, done = prefix.start(ids), []
        sampler = p.make_sampler(self.hparams.n_vocab)
        try:
            for piece in stream(prefix.ctx, rest, **(p.of_stream() | {"sampler": sampler})):
                if piece.token is not None:
                    done.append(piece.token)
                yield piece
        finally:
            prefix.add([*rest, *done])

    def _prefix(self, n_tokens: int) -> Prefix:
        """The model's own context, with room for so many tokens."""
        n_ctx = min(max(N_CTX_LEAST, 2 ** (n_tokens - 1).bit_length()), self.hparams.n_ctx_train)
        if self._own is None or self._own.ctx.n_ctx < min(n_tokens, self.hparams.n_ctx_train):
            self._own = Prefix(Context(self, n_ctx=n_ctx))
        return self._own

    @takes(AnswerParams)
    def chat(self, messages: str | Sequence[Message], **options: Any) -> str:
        """The answer to a question, or to a conversation [{"role": "user", "content": ...}, ...],
        through the model's chat template.

        What is in common with the call before is not computed again. Raises ModelError for a model
        without a template.
        """
        text = Conversation.prompt(self, messages)
        return "".join(piece.text for piece in self.stream(text, **options))

    def embed(
        self, texts: str | Sequence[str], pooling: str = "auto", normalize: bool = True
    ) -> F32:
        """F32 [n] of a text, or [n_texts, n] of several; see llama_py.embed.embed."""
        several = not isinstance(texts, str)
        rows = embed(self, [texts] if isinstance(texts, str) else texts, pooling, normalize)
        return rows if several else rows[0]

    def close(self) -> None:
        """Give memory and file back. Contexts of the model must not be used any more."""
        if self._own is not None:
            self._own.ctx.close()
            self._own = None
        self._weights.release()
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def __repr__(self) -> str:
        return f"<Model {self.arch} {self.file.path} on {self.device_names}>"


describe(Model.__init__, ModelParams)
describe(Model.context, ContextParams)
