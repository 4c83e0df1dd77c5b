"""User options, each declared once: see option.py, and README.md to add one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ggml_py.errors import ContextError
from llama_py.params import texts
from llama_py.params.caches import CACHE_TYPES as CACHE_TYPES
from llama_py.params.like import LIKE, LLAMA_CPP
from llama_py.params.option import Params, option
from llama_py.params.rules import SCALARS, integers, zero_or
from llama_py.params.sampling import SamplingParams as SamplingParams
from llama_py.params.speculative import SpeculativeParams

if TYPE_CHECKING:
    from ggml_py.backend import Device
    from ggml_py.tensor import Tensor
    from llama_py.params.choosers import Chooser, LogitsProcessor, Thinking

MAX_SEQ = 256  # LLAMA_MAX_SEQ
MAX_THREADS = 512  # GGML_MAX_N_THREADS

P = TypeVar("P", bound=Params)
Progress = Callable[[int, int, str], None]
SPLIT_MODES = ("layer", "row", "graph", "tensor", "none")
REDUCE_TYPES = ("f32", "f16", "bf16", "q8_0")
ATTENTION = ("causal", "non-causal")
POOLING = ("none", "mean", "cls", "last", "rank")  # llama.h:llama_pooling_type


BASE = zero_or(1e-30, 1e30)  # RoPE base; it and its inverse are exact in f32


@dataclass(frozen=True, kw_only=True)
class ModelParams(Params):
    """Options for loading a model: the arguments of `llama_py.load`."""

    call = "llama_py.load(path, {})"

    device: str | Device | Sequence[str | Device] = option(
        "cpu",
        "-dev --device",
        "devices to run on, the last of several being the host; auto:"
        " every GPU (see --list-devices)",
        parse=texts.device_names,
        metavar="NAME,...",
    )
    n_gpu_layers: int = option(
        -1,
        "-ngl --gpu-layers --n-gpu-layers",
        "layers to keep on other devices than the host, from the output on (negative or all: all)",
        parse=texts.layer_count,
        metavar="N|all",
    )
    tensor_overrides: Mapping[str, str] = option(
        dict,
        "-ot --override-tensor",
        "weights whose name matches go there",
        many=True,
        parse=texts.tensor_rules,
        metavar="REGEX=DEVICE,...",
    )
    n_cpu_moe: int = option(
        0,
        "-ncmoe --n-cpu-moe",
        "layers, from the first, whose experts stay on the host",
        check=integers(0),
    )
    cpu_moe: bool = option(False, "-cmoe --cpu-moe", "the experts of all layers stay on the host")
    n_cpu_ffn: int = option(
        0,
        "-ncffn --n-cpu-ffn",
        "layers, from the first, whose feed-forward networks without experts stay on the host",
        check=integers(0),
    )
    split_mode: str = option(
        "layer",
        "-sm --split-mode",
        "how several devices share a model: whole layers, the rows of"
        " matrices, or heads and hidden channels, whose partial sums are added (graph in"
        " ik_llama.cpp, tensor in llama.cpp: both are the same); none: one device alone",
        choices=SPLIT_MODES,
    )
    parallel: str | Mapping[str, int] = option(
        "",
        "--parallel --model-parallel",
        "how devices are divided, whatever the split mode: pp"
        " stages of layers, in each of which tp devices share heads and hidden channels, and ep"
        " have some of the experts",
        metavar="tp=N,pp=N,ep=N",
    )
    main_gpu: int = option(
        0,
        "-mg --main-gpu",
        "number of the device that is used (none), or that has what is not split (row, graph)",
        check=integers(0),
    )
    tensor_split: Sequence[float] = option(
        (),
        "-ts --tensor-split",
        "shares of the devices (default: by free memory)",
        parse=texts.shares,
        metavar="N,N,...",
    )
    load_mtp: bool = option(False, "", "also load the NextN layers")
    kv_overrides: Mapping[str, bool | int | float | str] = option(
        dict,
        "--override-kv",
        "other values of the file's metadata; a TYPE is int, float, bool or str",
        parse=texts.kv_overrides,
        check=SCALARS,
        many=True,
        metavar="KEY=TYPE:VALUE,...",
    )
    like: str = option(
        LLAMA_CPP,
        "--like",
        "whose computation to follow where they differ: llama.cpp's graph, or"
        " the code of the model's authors in transformers",
        choices=LIKE,
    )
    use_mmap: bool = option(
        True,
        "--mmap",
        "map the file; off: read all of it at the start, so that it may be changed"
        " or cut short while the model is in use",
        off="--no-mmap",
    )
    use_mlock: bool = option(
        False, "--mlock", "keep weights in memory: the system may not swap them out"
    )
    progress: Progress | bool | None = option(
        None,
        "",
        "called as progress(done, total, what) while weights are read; None: kernels that"
        " are compiled are shown on a terminal, False: nothing is",
    )


@dataclass(frozen=True, kw_only=True)
class ContextParams(Params):
    """Options of a context: the arguments of `Context`."""

    error = ContextError
    call = "model.context({})"

    n_ctx: int | None = option(
        None,
        "-c --ctx-size",
        "context size in tokens, of all sequences together (default, or -c 0: the model's own)",
        parse=texts.above_zero,
        check=integers(1),
    )
    n_batch: int = option(
        2048, "-b --batch-size", "tokens of one logical batch", env="BATCH", check=integers(1)
    )
    n_ubatch: int = option(
        512, "-ub --ubatch-size", "tokens computed at once", env="UBATCH", check=integers(1)
    )
    n_threads: int | None = option(
        None,
        "-t --threads",
        "threads (default, or -t 0: one per core)",
        parse=texts.above_zero,
        check=integers(1, MAX_THREADS),
    )
    n_threads_batch: int | None = option(
        None,
        "-tb --threads-batch",
        "threads for several tokens at once, as in prompts (default, or -tb 0: as -t)",
        parse=texts.above_zero,
        check=integers(1, MAX_THREADS),
    )
    flash_attn: bool | Literal["auto", "on", "off"] = option(
        "auto",
        "-fa --flash-attn",
        "fused attention; auto: where the device can",
        choices=("auto", "on", "off", True, False),
        metavar="on|off|auto",
        parse=texts.on_off_auto,
    )
    type_k: str = option(
        "f16",
        "-ctk --cache-type-k",
        f"type of the K cache: {', '.join(CACHE_TYPES)}",
        choices=CACHE_TYPES,
        metavar="TYPE",
    )
    type_v: str = option(
        "f16",
        "-ctv --cache-type-v",
        "type of the V cache, one of the same",
        choices=CACHE_TYPES,
        metavar="TYPE",
    )
    offload_kqv: bool = option(
        True,
        "-kvo --kv-offload",
        "keep the memory of a layer on its device; off: on the host"
        " (split mode graph: keys and values only)",
        off="-nkvo --no-kv-offload",
    )
    swa_full: bool = option(
        False,
        "--swa-full",
        "also layers that see a window of tokens keep all: a sequence can then"
        " go on from any earlier token without a snapshot",
    )
    reduce_type: str = option(
        "f32",
        "-grt --graph-reduce-type",
        "split mode graph: the type in which devices exchange partial sums of more than 32 tokens",
        choices=REDUCE_TYPES,
    )
    forms: Mapping[str, str] = option(
        dict,
        "--form",
        "how blocks are built that can be built in several ways; what is left open"
        " is one op where the device can",
        parse=texts.forms,
        many=True,
        metavar="KIND=FORM,...",
    )
    rope_scaling: str | None = option(
        None,
        "--rope-scaling",
        "how RoPE reaches behind the positions of the training (default: the model's own)",
        choices=("none", "linear", "yarn"),
        env="ROPE_SCALING_TYPE",
    )
    rope_scale: float = option(
        0.0,
        "--rope-scale",
        "RoPE: how many times as many positions (0: the model's own)",
        check=BASE,
    )
    rope_freq_base: float = option(
        0.0, "--rope-freq-base", "RoPE: base of the frequencies (0: the model's own)", check=BASE
    )
    rope_freq_scale: float = option(
        0.0,
        "--rope-freq-scale",
        "RoPE: the inverse of --rope-scale (0: the model's own)",
        check=BASE,
    )
    yarn_orig_ctx: int = option(
        0,
        "--yarn-orig-ctx",
        "YaRN: context of the training (0: the model's own)",
        check=integers(0, 2**31 - 1),
    )
    yarn_ext_factor: float = option(
        -1.0,
        "--yarn-ext-factor",
        "YaRN: how much is extrapolated (0: nothing, -1: as the model says)",
    )
    yarn_attn_factor: float = option(
        -1.0,
        "--yarn-attn-factor",
        "factor of heads that RoPE turned, where nothing is extrapolated (-1: as the model says)",
    )
    yarn_beta_slow: float = option(
        -1.0,
        "--yarn-beta-slow",
        "YaRN: turns that are few, which are interpolated (-1: the model's, mostly 1)",
    )
    yarn_beta_fast: float = option(
        -1.0,
        "--yarn-beta-fast",
        "YaRN: turns that are many, which stay (-1: the model's, mostly 32)",
    )
    cache_ram: int | None = option(
        None,
        "-cram --cache-ram",
        "MiB of host memory for snapshots, and for the states of"
        " sequences that are not in use (-1: no limit, 0: none is kept; default: 8192, but no more"
        " than a quarter of the memory that is free when the context is made)",
        parse=int,
        check=integers(-1),
    )
    ctx_checkpoints: int = option(
        32,
        "-ctxcp --ctx-checkpoints --swa-checkpoints",
        "snapshots of a sequence, of states and attention windows, that are kept at most",
        env="CTX_CHECKPOINTS",
        check=integers(0),
    )
    checkpoint_min_step: int = option(
        512,
        "-cms --checkpoint-min-step",
        "tokens between two of them, more in long prompts; there"
        " are others where prompts end or part (0: only those)",
        env="CHECKPOINT_MIN_SPACING_NT",
        check=integers(0),
    )
    check: str | None = option(
        None,
        "--check",
        "compute every node on this device too, and stop at the first that differs",
        metavar="ref|cpu",
    )

    n_seq_max: int = option(1, "", "how many sequences there may be", check=integers(1, MAX_SEQ))
    n_rs_seq: int = option(
        0,
        "",
        "tokens of its last ubatch that a sequence of a model with recurrent states can be"
        " taken back; their states are kept",
        check=integers(0),
    )
    rs_ram: int = option(
        2048,
        "--rs-ram",
        "MiB that kept states of earlier tokens may take, of all sequences"
        " together: beyond it fewer are kept (0: no limit)",
        metavar="MIB",
        check=integers(0),
    )
    kv_unified: bool = option(
        False,
        "",
        "sequences share all cells, instead of each having its own part; without flash"
        " attention a NaN in one then reaches the others, for hidden cells are weighted by 0",
    )
    embeddings: bool = option(
        False, "", "also keep the last hidden state of each token, in `Context.embd`"
    )
    pooling: str = option(
        "auto",
        "",
        "how a sequence's rows become one; auto: as the model says",
        choices=("auto", *POOLING),
    )
    attention: str = option(
        "auto",
        "",
        "whether tokens see those after them; auto: as the model says",
        choices=("auto", *ATTENTION),
    )
    mtp: bool = option(False, "", "run a NextN layer instead of the trunk")
    nextn_layer: int = option(0, "", "which of them, the first being 0", check=integers(0))
    target: Any = option(None, "", "of a model that can only draft: the context that it drafts for")
    fuse: bool = option(True, "", "let the device run several nodes as one")
    progress: Progress | bool | None = option(
        None,
        "",
        "called as progress(done, total, what) while kernels are compiled; None: that is"
        " shown on a terminal, False: it is not",
    )
    watch: Callable[[Tensor], None] | None = option(
        None, "", "called with every node's tensor once its value is there; slow, nothing is fused"
    )


@dataclass(frozen=True, kw_only=True)
class GenerateParams(SpeculativeParams):
    """Options for the end of a response, its text and drafting: arguments of `stream`."""

    max_tokens: int = option(
        -1,
        "-n --predict --n-predict",
        "tokens to generate (-1: to the end, or a full context)",
        check=integers(-2),  # llama.cpp's -2 is the same
    )
    stop: Sequence[str] = option(
        (),
        "-r --reverse-prompt",
        "stop at this text; may be repeated",
        metavar="TEXT",
        parse=texts.once,
        many=True,
    )
    special: bool = option(False, "-sp --special", "show special tokens")
    preserved_tokens: Sequence[int] = option((), "", "special tokens that are shown in any case")
    context_shift: bool = option(
        False,
        "--context-shift",
        "let a full context go on: half of what comes after the kept tokens leaves",
        off="--no-context-shift",
    )
    n_keep: int = option(
        0,
        "--keep",
        "tokens at the beginning that a context shift keeps (-1: the prompt)",
        check=integers(-1),
    )
    sampler: Chooser | None = option(None, "", "what chooses tokens (None: the most likely)")
    thinking: Thinking | None = option(
        None,
        "",
        "the tags around the thoughts that an answer begins with: a sampler's constraint"
        " holds for what follows them",
    )
    logits_processors: Sequence[LogitsProcessor] = option(
        (), "", "called in turn with the tokens so far and the logits [n_vocab]; give new logits"
    )
    logprobs: int | None = option(
        None,
        "",
        "also give each token's log probability, and those of so many most likely ones",
        check=integers(0),
    )
    seq_id: int = option(0, "", "which sequence of the context goes on", check=integers(0))
    before: Sequence[int] = option(
        (), "", "what came before the prompt, for the sampler and the logits processors"
    )


@dataclass(frozen=True, kw_only=True)
class AnswerParams(GenerateParams, SamplingParams):
    """Options of a response: the arguments of `Model.generate`, `stream` and `chat`."""

    call = "model.generate(prompt, {})"

    def part(self, kind: type[P]) -> P:
        """Return the fields of a base class."""
        return kind(**{f.name: getattr(self, f.name) for f in fields(kind)})
