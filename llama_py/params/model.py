"""How a model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llama_py.params import texts
from llama_py.params.option import Params, option
from llama_py.params.rules import Integers

if TYPE_CHECKING:
    from ggml_py.backend import Device


@dataclass(frozen=True, kw_only=True)
class ModelParams(Params):
    """How a model is loaded: the arguments of `llama_py.load`."""

    device: str | Device | Sequence[str | Device] = option(
        "cpu", "-dev", "--device", env="LLAMA_ARG_DEVICE", parse=texts.device_names,
        metavar="NAME,...", help="devices to run on, the last of several being the host; auto:"
        " every GPU (see --list-devices)",
    )  # fmt: skip
    n_gpu_layers: int = option(
        -1, "-ngl", "--gpu-layers", "--n-gpu-layers", env="LLAMA_ARG_N_GPU_LAYERS",
        parse=texts.layer_count, metavar="N|all",
        help="layers to keep on other devices than the host, from the output on (-1 or all: all)",
    )  # fmt: skip
    tensor_overrides: Mapping[str, str] = option(
        dict, "-ot", "--override-tensor", env="LLAMA_ARG_OVERRIDE_TENSOR",
        parse=texts.tensor_rules, many=True, metavar="REGEX=DEVICE,...",
        help="weights whose name matches go there",
    )  # fmt: skip
    n_cpu_moe: int = option(
        0, "-ncmoe", "--n-cpu-moe", env="LLAMA_ARG_N_CPU_MOE", check=Integers(0),
        help="layers, from the first, whose experts stay on the host",
    )  # fmt: skip
    tensor_split: Sequence[float] = option(
        (), "-ts", "--tensor-split", env="LLAMA_ARG_TENSOR_SPLIT", parse=texts.shares,
        metavar="N,N,...", help="shares of the layers by device (default: by free memory)",
    )  # fmt: skip
    load_mtp: bool = option(False, help="also load the NextN layers")
    progress: Callable[[int, int, str], None] | None = option(
        None, help="called as progress(done, total, what) while weights are read"
    )
