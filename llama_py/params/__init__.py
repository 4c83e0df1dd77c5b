"""User options, each declared once: see option.py, and README.md to add one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
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


class ModelParams(Params):
    """Options for loading a model: the arguments of `llama_py.load`."""

    call = "llama_py.load(path, {})"
    group = "model"

    device: str | Device | Sequence[str | Device] = option(
        "cpu",
        "-dev --device",
        "devices to run on (auto: all GPUs); the last of several is the host; --list-devices"
        " prints the names",
        parse=texts.device_names,
        metavar="NAME,...",
    )
    n_gpu_layers: int = option(
        -1,
        "-ngl --gpu-layers --n-gpu-layers",
        "number of layers to offload from the host (all, or negative: all); counted from the"
        " output",
        parse=texts.layer_count,
        metavar="N|all",
    )
    tensor_overrides: Mapping[str, str] = option(
        dict,
        "-ot --override-tensor",
        "device for the weights that a regular expression matches; may be repeated",
        many=True,
        parse=texts.tensor_rules,
        metavar="REGEX=DEVICE,...",
    )
    n_cpu_moe: int = option(
        0,
        "-ncmoe --n-cpu-moe",
        "number of layers with expert weights on the host; counted from the first layer",
        check=integers(0),
    )
    cpu_moe: bool = option(
        False, "-cmoe --cpu-moe", "keep the expert weights of all layers on the host"
    )
    n_cpu_ffn: int = option(
        0,
        "-ncffn --n-cpu-ffn",
        "number of layers with dense FFN weights on the host; counted from the first layer",
        check=integers(0),
    )
    split_mode: str = option(
        "layer",
        "-sm --split-mode",
        "division of the model among devices: whole layers (layer), rows of weight matrices"
        " (row), heads and FFN dimensions (graph or tensor), or a single device (none)",
        choices=SPLIT_MODES,
    )
    parallel: str | Mapping[str, int] = option(
        "",
        "--parallel --model-parallel",
        "device counts for tensor (tp), pipeline (pp) and expert parallelism (ep); valid with"
        " any --split-mode",
        metavar="tp=N,pp=N,ep=N",
    )
    main_gpu: int = option(
        0,
        "-mg --main-gpu",
        "index of the only device (--split-mode none), or of the device for unsplit tensors"
        " (row, graph)",
        check=integers(0),
    )
    tensor_split: Sequence[float] = option(
        (),
        "-ts --tensor-split",
        "proportions of the model per device, such as 3,1 (default: by free memory)",
        parse=texts.shares,
        metavar="N,N,...",
    )
    load_mtp: bool = option(False, "", "also load the NextN (multi-token prediction) layers")
    kv_overrides: Mapping[str, bool | int | float | str] = option(
        dict,
        "--override-kv",
        "metadata values that replace the file's values; TYPE is int, float, bool or str",
        parse=texts.kv_overrides,
        check=SCALARS,
        many=True,
        metavar="KEY=TYPE:VALUE,...",
    )
    like: str = option(
        LLAMA_CPP,
        "--like",
        "reference to follow if both differ: llama.cpp's graph, or the model authors' code in"
        " transformers",
        choices=LIKE,
    )
    use_mmap: bool = option(
        True,
        "--mmap",
        "map the model file into memory; off: read the whole file first, so that it may change"
        " during use",
        off="--no-mmap",
    )
    use_mlock: bool = option(
        False, "--mlock", "lock the weights in RAM, so that the system cannot swap them out"
    )
    quantize: str = option(
        "",
        "--quantize",
        "type to quantize weights to when they are loaded, such as Q4_K_M, for a checkpoint's"
        " folder or an unquantized file",
        parse=texts.file_type_name,
        metavar="TYPE",
    )
    keep_quantized: bool = option(
        False,
        "--keep-quantized",
        "store the model of --quantize in the cache directory, and load it from there later",
    )
    max_memory: int = option(
        0,
        "--memory",
        "maximum memory of this process, such as 8G or 6000M (default: the system's limit);"
        " kernels read the weights in excess from the file",
        parse=texts.byte_count,
        check=integers(0),
        metavar="SIZE",
    )
    reserve: int | None = option(
        None,
        "",
        "bytes of that memory for contexts; None: an eighth, at least 256 MiB",
        check=integers(0),
    )
    progress: Progress | bool | None = option(
        None,
        "",
        "callback progress(done, total, label) during loading; None: show kernel compilation on"
        " a terminal; False: show no progress",
    )


class ContextParams(Params):
    """Options of a context: the arguments of `Context`."""

    error = ContextError
    call = "model.context({})"
    group = "context"

    n_ctx: int | None = option(
        None,
        "-c --ctx-size",
        "context size in tokens (default, or -c 0: from the model); shared by all sequences",
        parse=texts.above_zero,
        check=integers(1),
    )
    n_batch: int = option(
        2048, "-b --batch-size", "maximum tokens per logical batch", env="BATCH", check=integers(1)
    )
    n_ubatch: int = option(
        512,
        "-ub --ubatch-size",
        "maximum tokens per physical batch",
        env="UBATCH",
        check=integers(1),
    )
    n_threads: int | None = option(
        None,
        "-t --threads",
        "number of threads (default, or -t 0: one per core)",
        parse=texts.above_zero,
        check=integers(1, MAX_THREADS),
    )
    n_threads_batch: int | None = option(
        None,
        "-tb --threads-batch",
        "number of threads for prompts and batches (default, or -tb 0: --threads)",
        parse=texts.above_zero,
        check=integers(1, MAX_THREADS),
    )
    flash_attn: bool | Literal["auto", "on", "off"] = option(
        "auto",
        "-fa --flash-attn",
        "flash attention (auto: if the device supports it)",
        choices=("auto", "on", "off", True, False),
        metavar="on|off|auto",
        parse=texts.on_off_auto,
    )
    type_k: str = option(
        "f16",
        "-ctk --cache-type-k",
        f"data type of the K cache; known types: {', '.join(CACHE_TYPES)}",
        choices=CACHE_TYPES,
        metavar="TYPE",
    )
    type_v: str = option(
        "f16",
        "-ctv --cache-type-v",
        "data type of the V cache; known types: see --cache-type-k",
        choices=CACHE_TYPES,
        metavar="TYPE",
    )
    offload_kqv: bool = option(
        True,
        "-kvo --kv-offload",
        "keep the KV cache or state of each layer on the layer's device; off: on the host (with"
        " --split-mode graph: the KV cache only)",
        off="-nkvo --no-kv-offload",
    )
    swa_full: bool = option(
        False,
        "--swa-full",
        "use a full-size KV cache for sliding-window layers; sequences can then continue from"
        " any earlier token without a checkpoint",
    )
    reduce_type: str = option(
        "f32",
        "-grt --graph-reduce-type",
        "data type of partial sums that devices exchange with --split-mode graph, for more than"
        " 32 tokens",
        choices=REDUCE_TYPES,
    )
    forms: Mapping[str, str] = option(
        dict,
        "--form",
        "variant of a type of block, such as delta_net=chunked (default: one fused op if the"
        " device supports it)",
        parse=texts.forms,
        many=True,
        metavar="KIND=FORM,...",
    )
    rope_scaling: str | None = option(
        None,
        "--rope-scaling",
        "RoPE scaling method for positions beyond the training context (default: from the model)",
        choices=("none", "linear", "yarn"),
        env="ROPE_SCALING_TYPE",
    )
    rope_scale: float = option(
        0.0, "--rope-scale", "RoPE: context scaling factor (0: from the model)", check=BASE
    )
    rope_freq_base: float = option(
        0.0, "--rope-freq-base", "RoPE: base frequency (0: from the model)", check=BASE
    )
    rope_freq_scale: float = option(
        0.0,
        "--rope-freq-scale",
        "RoPE: frequency scaling factor, the inverse of --rope-scale (0: from the model)",
        check=BASE,
    )
    yarn_orig_ctx: int = option(
        0,
        "--yarn-orig-ctx",
        "YaRN: context size of the training (0: from the model)",
        check=integers(0, 2**31 - 1),
    )
    yarn_ext_factor: float = option(
        -1.0,
        "--yarn-ext-factor",
        "YaRN: weight of extrapolation (0: interpolation only, -1: from the model)",
    )
    yarn_attn_factor: float = option(
        -1.0,
        "--yarn-attn-factor",
        "YaRN: scale of rotated queries and keys without extrapolation (-1: from the model)",
    )
    yarn_beta_slow: float = option(
        -1.0,
        "--yarn-beta-slow",
        "YaRN: number of rotations below which dimensions are interpolated (-1: from the model,"
        " usually 1)",
    )
    yarn_beta_fast: float = option(
        -1.0,
        "--yarn-beta-fast",
        "YaRN: number of rotations above which dimensions are unchanged (-1: from the model,"
        " usually 32)",
    )
    cache_ram: int | None = option(
        None,
        "-cram --cache-ram",
        "host memory in MiB for checkpoints and for states of idle sequences (-1: no limit, 0:"
        " off, default: four times the size of the context, 64 to 8192, at most a quarter of the"
        " free memory); also for all models of a server together",
        parse=int,
        check=integers(-1),
    )
    ctx_checkpoints: int = option(
        32,
        "-ctxcp --ctx-checkpoints --swa-checkpoints",
        "maximum checkpoints per sequence, of recurrent states and sliding windows",
        env="CTX_CHECKPOINTS",
        check=integers(0),
    )
    checkpoint_min_step: int = option(
        512,
        "-cms --checkpoint-min-step",
        "minimum tokens between checkpoints, more in long prompts (0: only at ends and branches"
        " of prompts)",
        env="CHECKPOINT_MIN_SPACING_NT",
        check=integers(0),
    )
    check: str | None = option(
        None,
        "--check",
        "compute every node on this device as well, and stop at the first difference",
        metavar="ref|cpu",
    )

    n_seq_max: int = option(1, "", "maximum number of sequences", check=integers(1, MAX_SEQ))
    n_rs_seq: int = option(
        0,
        "",
        "tokens of the last ubatch that a sequence with recurrent states can roll back",
        check=integers(0),
    )
    rs_ram: int = option(
        2048,
        "--rs-ram",
        "memory in MiB for earlier recurrent states of all sequences (0: no limit); beyond the"
        " limit fewer states are stored",
        metavar="MIB",
        check=integers(0),
    )
    kv_unified: bool = option(
        False,
        "",
        "share all KV cells between sequences, instead of an equal part per sequence; without"
        " flash attention, a NaN of one sequence then reaches the others",
    )
    embeddings: bool = option(
        False, "", "also store the last hidden state of each token, in `Context.embd`"
    )
    pooling: str = option(
        "auto",
        "",
        "pooling of a sequence's hidden states (auto: from the model)",
        choices=("auto", *POOLING),
    )
    attention: str = option(
        "auto",
        "",
        "attention mask, causal or non-causal (auto: from the model)",
        choices=("auto", *ATTENTION),
    )
    mtp: bool = option(
        False, "", "run a NextN (multi-token prediction) layer instead of the main model"
    )
    nextn_layer: int = option(0, "", "index of the NextN layer to run", check=integers(0))
    target: Any = option(None, "", "context of the target model, for draft-only models")
    fuse: bool = option(True, "", "allow the device to fuse several nodes into one kernel")
    progress: Progress | bool | None = option(
        None,
        "",
        "callback progress(done, total, label) during kernel compilation; None: show progress"
        " on a terminal; False: show no progress",
    )
    watch: Callable[[Tensor], None] | None = option(
        None, "", "callback with the tensor of every computed node; slow, disables fused kernels"
    )


class GenerateParams(SpeculativeParams):
    """Options for the end of a response, its text and drafting: arguments of `stream`."""

    group = "generation"

    max_tokens: int = option(
        -1,
        "-n --predict --n-predict",
        "maximum tokens to generate (-1: no limit); the end of the response or context also"
        " ends generation",
        check=integers(-2),  # llama.cpp's -2 is the same
    )
    stop: str | Sequence[str] = option(
        (),
        "-r --reverse-prompt",
        "stop generation at this text; may be repeated",
        metavar="TEXT",
        parse=texts.text_tuple,
        many=True,
    )
    turn_ends: Sequence[str] = option(
        (), "", "texts that end a response while no constraint, such as a grammar, applies"
    )
    special: bool = option(False, "-sp --special", "print special tokens")
    preserved_tokens: Sequence[int] = option((), "", "special tokens that are always printed")
    context_shift: bool = option(
        False,
        "--context-shift",
        "when the context is full, discard half of the tokens after the first --keep and continue",
        off="--no-context-shift",
    )
    n_keep: int = option(
        0,
        "--keep",
        "tokens at the start of the prompt that a context shift keeps (-1: the whole prompt)",
        check=integers(-1),
    )
    sampler: Chooser | None = option(
        None, "", "sampler that chooses each token (None: the most likely token)"
    )
    thinking: Thinking | None = option(
        None,
        "",
        "delimiters of the reasoning at the start of a response; a sampler's constraint begins"
        " after the reasoning",
    )
    logits_processors: Sequence[LogitsProcessor] = option(
        (),
        "",
        "functions that map the tokens and their next logits [n_vocab] to new logits, in order",
    )
    logprobs: int | None = option(
        None,
        "",
        "return log probabilities of each token and of the n most likely tokens",
        check=integers(0),
    )
    seq_id: int = option(0, "", "sequence of the context to continue", check=integers(0))
    before: Sequence[int] = option(
        (), "", "tokens before the prompt, for the sampler and the logits processors"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))


class AnswerParams(GenerateParams, SamplingParams):
    """Options of a response: the arguments of `Model.generate`, `stream` and `chat`."""

    call = "model.generate(prompt, {})"

    def part(self, kind: type[P]) -> P:
        """Return the fields of a base class."""
        return kind(**{f.name: getattr(self, f.name) for f in fields(kind)})
