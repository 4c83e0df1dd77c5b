"""Loaded model: a file with its weights on devices, which contexts run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ggml_py._moved import Former, former_names
from ggml_py.backend import SupportsKernelCache
from ggml_py.backend.registry import gpu_hint
from ggml_py.errors import ModelError
from llama_py.adapters.lora import Adapter, Loras
from llama_py.batch.prompts import decode_text
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.file_types import file_type_text, guess_type
from llama_py.hparams import HParams
from llama_py.hparams.unused_keys import check_unused_keys
from llama_py.loading.open import open_model
from llama_py.loading.weight_users import find_weight_users
from llama_py.models import architecture
from llama_py.params import ModelParams, Progress
from llama_py.params.like import warn_of_differences
from llama_py.support.progress import progress_callback, show_progress
from llama_py.support.resource import Resource
from llama_py.tokenizer import Tokenizer
from llama_py.weights import Weights
from llama_py.weights.declarations import DeviceOf, Readers
from llama_py.weights.declarations import Progress as ReadProgress
from llama_py.weights.parallel import Parallel
from llama_py.weights.placement import (
    SAME_MODE,
    Placement,
    arrange_devices,
    devices_in_use,
    host_rules,
    overrides,
    warn_of_idle_rules,
)
from llama_py.weights.repacking import MemoryLimit

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ggml_py.backend import Bytes, Device, ExpertStats
    from llama_py.chat import ChatTemplate
    from llama_py.vision.encoder import ImageEncoder

log = logging.getLogger("llama_py")

DEMO = Path(__file__).parents[1] / "data" / "demo.gguf"


class LoadOptions(TypedDict, total=False):
    """The fields of ModelParams but the device."""

    n_gpu_layers: int
    tensor_overrides: Mapping[str, str]
    n_cpu_moe: int
    cpu_moe: bool
    n_cpu_ffn: int
    split_mode: str
    parallel: str | Mapping[str, int]
    main_gpu: int
    tensor_split: Sequence[float]
    load_mtp: bool
    kv_overrides: Mapping[str, bool | int | float | str]
    like: str
    use_mmap: bool
    use_mlock: bool
    quantize: str
    keep_quantized: bool
    max_memory: int
    reserve: int | None
    progress: Progress | bool | None


def create_placement(device: str | Device | Sequence[str | Device], p: ModelParams) -> Placement:
    """Return the placement on `device` for the options."""
    mode = SAME_MODE.get(p.split_mode, p.split_mode)
    parallel = Parallel.parse(p.parallel) if p.parallel else None
    if parallel is not None:
        mode = "graph" if parallel.size > 1 else "layer"
    found = devices_in_use(device)
    if len(found) == 1 and p.n_gpu_layers not in (-1, 0):
        log.warning(
            "n_gpu_layers = %s has no effect: the only device is %s; %s",
            "all" if p.n_gpu_layers < 0 else p.n_gpu_layers,
            found[0].name,
            gpu_hint(),
        )
    devices, shares = arrange_devices(found, mode, p.main_gpu, p.tensor_split)
    rules = (
        *overrides(p.tensor_overrides, p.n_cpu_moe, devices),
        *host_rules(devices[-1], p.cpu_moe, p.n_cpu_ffn),
    )
    return Placement(devices, p.n_gpu_layers, rules, shares, mode, parallel)


class LoadedModel(Resource):
    """A model's weights on their devices, its blocks and its tokenizer.

    file           the open file: its metadata and tensors
    architecture   the blocks that build graphs
    hparams        the model's hyperparameters
    placement      the devices in use; layer_devices: each layer's device, then the output's
    adapters       adapters loaded for the model
    vision         the image encoder, or None
    sizes          bytes of weights by device name
    n_params, n_bytes     of the loaded tensors
    spare          parts of a closed context for the next one (llama_py.context.spare)
    """

    spare: object = None

    def __init__(
        self,
        path: str | Path | GGUFFile | None = None,
        device: str | Device | Sequence[str | Device] | Placement = "cpu",
        **options: Unpack[LoadOptions],
    ) -> None:
        """Load a model; path: of a GGUF file or of a checkpoint's folder;
        None for the bundled demo model; device: one or several, the last
        being the host (see llama_py.weights.placement); options are the fields of ModelParams.

        Raises GGUFError, UnknownArchitecture, HParamsError, WeightsError, or BackendError; the
        first four before anything is allocated.
        """
        p = ModelParams(**options)
        path = DEMO if path is None else path
        self.vision: ImageEncoder | None = None
        self.file = open_model(path, p.use_mmap) if isinstance(path, str | Path) else path
        if p.quantize:
            self.file = self._quantize(p, isinstance(path, str | Path))
        if p.kv_overrides:
            self.file.override(p.kv_overrides)
        if not isinstance(device, Placement):
            device = create_placement(device, p)
        self.placement = device
        self._begin()
        self._load(p)
        warn_of_idle_rules(p.tensor_overrides, self._weights.all_tensors)

    def _quantize(self, p: ModelParams, can_keep: bool) -> GGUFFile:
        """Return the file in the wanted type; can_keep: its data can be read."""
        from llama_py.quantize.load import keep_quantized, quantize_model

        if not (p.keep_quantized and can_keep):
            return quantize_model(self.file, p.quantize)
        with show_progress(p.progress):
            return keep_quantized(self.file, p.quantize, progress_callback(p.progress))

    def _begin(self) -> None:
        types = {info.type.name for info in self.file.tensors.values()}
        for device in self.devices:
            if isinstance(device, SupportsKernelCache):
                device.begin(types)

    def _load(self, p: ModelParams) -> None:
        kind = architecture(self.file.architecture)
        self.hparams: HParams = kind.HParams(self.file.metadata, kind.arch, p.like)
        self.placement.check(self.hparams.n_layer_all)
        self.layer_devices = self.placement.layers(self.hparams.n_layer_all)
        weights = Weights(self.file.tensors, str(self.file.path), p.like)
        self.architecture = kind(self.hparams, weights, p.load_mtp)
        weights.finish()
        check_unused_keys(weights.source, self.file.metadata, self.hparams, kind.folds == kind.arch)
        warn_of_differences(
            weights.source,
            p.like,
            self.hparams.differences,
            weights.ignored_names,
            weights.restored_names,
        )
        device_of = self.placement.get_chooser(self.layer_devices)
        if self.placement.shares_layers:
            from llama_py.loading.split import split

            split(self.architecture, weights, self.placement, device_of)
        readers = find_weight_users(self.architecture, weights.all_tensors)
        self._weights = weights
        limit = MemoryLimit(p.max_memory, p.reserve) if p.use_mmap else None
        with show_progress(p.progress):
            self._place(device_of, readers, progress_callback(p.progress), limit)
        self.adapters: list[Adapter] = []
        self.sizes = weights.sizes
        self.n_params, self.n_bytes = weights.n_params, weights.n_bytes
        if p.use_mlock:
            from llama_py.weights.mlock import lock

            log.info("mlock: %.2f MiB", lock(weights.all_tensors) / 2**20)
        self._log_load()
        self._check_template()

    def _place(
        self,
        device_of: DeviceOf,
        readers: Readers,
        progress: ReadProgress | None,
        limit: MemoryLimit | None,
    ) -> None:
        self._weights.place(device_of, readers, progress, limit)

    def _log_load(self) -> None:
        n, n_all = self.placement.n_offloaded(self.hparams.n_layer_all), len(self.layer_devices)
        if self.placement.offload:
            if n:
                log.info("load_tensors: offloading output layer to GPU")
            log.info("load_tensors: offloading %d repeating layers to GPU", max(n - 1, 0))
            log.info("load_tensors: offloaded %d/%d layers to GPU", n, n_all)
        for name, size in self.sizes.items():
            log.info("load_tensors: %12s model buffer size = %8.2f MiB", name, size / 2**20)

    def plain_bytes(self, name: str) -> Bytes | None:
        """Return a weight's bytes in the file's layout, also if its device has repacked them; None
        if the name is unknown."""
        return self._weights.plain_bytes(name)

    @contextmanager
    def replaced_bytes(self, changes: Mapping[str, Bytes]) -> Iterator[None]:
        """Give weights other bytes of their types, by name, inside `with`. Contexts must be created
        and closed inside it, since they keep the addresses of weights."""
        try:
            with self._weights.replaced_bytes(changes):
                self.spare = None
                yield
        finally:
            self.spare = None

    @property
    def expert_stats(self) -> ExpertStats | None:
        """Counters of the cache of experts, for a model larger than the memory; else None."""
        return self._weights.expert_stats

    @property
    def arch(self) -> str:
        return self.architecture.arch

    @property
    def desc(self) -> str:
        """llama.cpp's name of the model and its size: "... 8B Q4_K - Medium" (llama_model_desc)."""
        said = self.file.metadata.get("general.file_type")
        types = {name: t.type for name, t in self.file.tensors.items()}
        number = said if isinstance(said, int) else guess_type(types)
        return f"{self.arch} {self.architecture.size_name(self.hparams)} {file_type_text(number)}"

    @property
    def has_encoder(self) -> bool:
        """True if a text is encoded as a whole before another is generated."""
        return "encoder" in self.architecture.gtypes

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices in use; the last one is the host."""
        return self.placement.devices

    @property
    def device_names(self) -> str:
        return ",".join(d.name for d in self.devices)

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint that identifies the model in saved states; see llama_py.gguf.fingerprint."""
        from llama_py.gguf.fingerprint import fingerprint

        return fingerprint(self.file)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.from_metadata(self.file.metadata)

    @cached_property
    def chat_template(self) -> ChatTemplate | None:
        """The file's template, unless another was set; None if both are missing."""
        t = self.tokenizer
        source = t.chat_template or t.tool_use_template
        return None if source is None else self._template(source, t.tool_use_template)

    @cached_property
    def default_template(self) -> ChatTemplate:
        """Chat template for models without one."""
        from llama_py.chat.named import DEFAULT, template_source

        log.warning("the model has no chat template; %s is used", DEFAULT)
        return self._template(template_source(DEFAULT))

    def set_chat_template(self, template: str) -> None:
        """Set the chat template: the name of a llama.cpp template, or a Jinja text.

        Raises ModelError for an unknown name, and for an invalid template.
        """
        from llama_py.chat.named import template_source

        made = self._template(template_source(template))
        made.check()
        self.chat_template = made

    def named_template(self, name: str) -> ChatTemplate | None:
        """Return another template of the file, `tokenizer.chat_template.NAME`; None without it."""
        source = self.file.metadata.get(f"tokenizer.chat_template.{name}")
        return self._template(source) if isinstance(source, str) else None

    def check_chat_template(self) -> None:
        """Raise ModelError if the model's chat template is invalid."""
        if self.chat_template is not None:
            self.chat_template.check()

    def _template(self, source: str, tool_use: str | None = None) -> ChatTemplate:
        from llama_py.chat import ChatTemplate

        t = self.tokenizer
        bos, eos = ("" if id is None else _text(t, id) for id in (t.bos, t.eos))
        return ChatTemplate(source, bos, eos, tool_use)

    def _check_template(self) -> None:
        """Warn about a template that will raise an error when used."""
        source = self.file.metadata.get("tokenizer.chat_template")
        if not isinstance(source, str) or self.file.path == DEMO:  # bundled: skip the check
            return  # saves a tenth of a start
        from llama_py.chat import ChatTemplate

        try:
            ChatTemplate(source).check()
        except ModelError as e:
            log.warning(
                "the model's chat template cannot be used: %s; pass another chat_template", e
            )

    def tokenize(
        self, text: str | bytes, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """Return the ids of a text; see Tokenizer.tokenize."""
        return self.tokenizer.tokenize(decode_text(text), add_special, parse_special)

    def detokenize(self, ids: Sequence[int], special: bool = False) -> str:
        """Return the text of ids; see Tokenizer.detokenize."""
        return self.tokenizer.detokenize(ids, special)

    def load_adapter(self, path: str | Path) -> Adapter:
        """Load a LoRA adapter for this model, for use with `Context.set_adapters`.

        Raises GGUFError for an invalid file, WeightsError for an adapter of another model.
        """
        adapter = Adapter(path, self.arch, self._weights.places, self.placement.host)
        if self.hparams.hadamard is not None:
            self.hparams.hadamard.check_adapter(str(path), adapter.pairs)
        readers = find_weight_users(self.architecture, adapter.tensors(), Loras(((adapter, 1.0),)))
        unread = [t.name for t in adapter.tensors() if not readers[id(t)]]
        if unread:
            log.warning(
                "%s: the model does not use these tensors: %s", path, ", ".join(unread[:10])
            )
        self.adapters.append(adapter)
        return adapter

    def load_vision(
        self, path: str | Path, device: str | Device | None = None, **options: Any
    ) -> ImageEncoder:
        """Load an image encoder (mmproj file) for this model, replacing an earlier one, which is
        closed. `path` may be the folder of a checkpoint with an encoder.

        device   None: the model's host;  options  see `llama_py.vision.ImageEncoder`

        Raises GGUFError, UnknownArchitecture, HParamsError, WeightsError, and ModelError if the
        file is no image encoder, or belongs to another model.
        """
        from llama_py.vision.encoder import ImageEncoder

        source = open_model(path, mmproj=True) if Path(path).is_dir() else path
        made = ImageEncoder(source, self.placement.host if device is None else device, **options)
        if made.n_embd != self.hparams.n_embd_inp:
            made.close()
            raise ModelError(
                f"{path}: image embeddings have length {made.n_embd}, but the model "
                f"{self.file.path} needs {self.hparams.n_embd_inp}; use the mmproj file that was "
                "made for the model"
            )
        if self.vision is not None:
            self.vision.close()
        self.vision = made
        return made

    @property
    def vision_encoder(self) -> ImageEncoder:
        """The model's image encoder; ModelError without one."""
        if self.vision is None:
            raise ModelError(
                "the prompt has an image, but no vision encoder is loaded; pass the model's "
                "mmproj file: --mmproj FILE or model.load_vision(path)"
            )
        return self.vision

    def close(self) -> None:
        """Give memory and file back. Contexts of the model must not be used any more."""
        if self.vision is not None:
            self.vision.close()
        self.spare = None
        self._weights.release()
        self.file.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.arch} {self.file.path} on {self.device_names}>"

    eyes = Former("vision_encoder")


def _text(tokenizer: Tokenizer, id: int) -> str:
    return tokenizer.token_bytes(id).decode("utf-8", "replace")


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, Loaded="LoadedModel")
