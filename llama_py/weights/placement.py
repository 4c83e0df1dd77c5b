"""Placement of weights, layers and caches on devices (llama-model.cpp:load_tensors).

Devices are listed in offload order, the host last: it stores the token embeddings and the layers
that are not offloaded, and runs nodes that other devices cannot run.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, runtime_checkable

from ggml_py.backend import Device
from ggml_py.backend.registry import backend_names, gpu_hint
from ggml_py.backend.registry import device as find_device
from ggml_py.backend.registry import devices as find_devices
from ggml_py.errors import BackendError
from ggml_py.tensor import Tensor
from llama_py.weights.parallel import Parallel

log = logging.getLogger("llama_py")

SHARING = ("row", "graph")
SAME_MODE = {"tensor": "graph"}  # llama.cpp's name
PARTS = 16  # the largest share has this number of parts; others are rounded to parts
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
DENSE = r"\.ffn_(up|down|gate)\."

Override = tuple[re.Pattern[str], Device]


@runtime_checkable
class Reopens(Protocol):
    """A device that can be opened several times under different names."""

    def reopen(self, name: str, number: int = 0, n: int = 1) -> Device:
        """Return another device with this name: number `number` of n that share its resources."""


def devices_in_use(wanted: str | Device | Sequence[str | Device]) -> tuple[Device, ...]:
    """Open devices by name, or take them as given; `cpu` is added if one needs a host.

    `auto` selects every GPU and the CPU. A device named twice is opened twice, if it can be:
    `opencl0,opencl0` are opencl0 and opencl0.2, `cpu,cpu` each have half of the threads.
    Raises BackendError for an unknown name.
    """
    several = wanted if isinstance(wanted, (list, tuple)) else (wanted,)
    if several in (("auto",), ["auto"]):
        several = (*_gpus(), "cpu")
    found = [find_device(d) if isinstance(d, str) else d for d in several]
    if not found:
        raise BackendError("the list of devices is empty; name at least one, such as cpu")
    if found[-1].kind in ("gpu", "accel"):
        found.append(find_device("cpu"))
    found = [_opened_again(d, found[:i].count(d), found.count(d)) for i, d in enumerate(found)]
    names = [d.name for d in found]
    if len(set(names)) < len(names):
        raise BackendError(f"devices must differ, got {', '.join(names)}")
    return tuple(found)


def _opened_again(device: Device, number: int, n: int) -> Device:
    """Return a separate device for a repeated name; from the second on `.2` is appended."""
    if n == 1 or not isinstance(device, Reopens):
        return device
    return device.reopen(f"{device.name}.{number + 1}" if number else device.name, number, n)


def _gpus() -> list[Device]:
    """Return the GPUs of all installed backends; a backend that fails to load is skipped."""
    return [d for name in backend_names() for d in _find_backend_devices(name) if d.kind == "gpu"]


def _find_backend_devices(backend: str) -> Sequence[Device]:
    try:
        return find_devices(backend)
    except BackendError as e:
        log.warning("%s", e)
        return ()


@dataclass(frozen=True, slots=True)
class Placement:
    """Rules for placing the parts of a model.

    devices       devices to offload to, then the host; a single one has everything
    n_gpu_layers  number of layers to offload, counted from the output, which is one; -1: all
    overrides     devices of weights by patterns of their names; the first match counts
    tensor_split  shares of the offloaded layers by device; empty: by free memory
    split_mode    devices share layers for "row" and "graph", not for "layer" and "none"
    parallel      stages of devices that share layers; None: see split_mode
    """

    devices: tuple[Device, ...]
    n_gpu_layers: int = -1
    overrides: tuple[Override, ...] = ()
    tensor_split: tuple[float, ...] = ()
    split_mode: str = "layer"
    parallel: Parallel | None = None

    @property
    def host(self) -> Device:
        return self.devices[-1]

    @property
    def offload(self) -> tuple[Device, ...]:
        return self.devices[:-1]

    def check(self, n_layer_all: int) -> None:
        """Raise BackendError for more stages than layers plus the output; warn about stages without
        layers."""
        if self.parallel is None:
            return
        if self.parallel.pp > n_layer_all + 1:
            raise BackendError(
                f"pp must be at most {n_layer_all + 1} stages (the model has {n_layer_all} "
                f"layers and the output), got {self.parallel.pp}"
            )
        used = {d.name for d in self.layers(n_layer_all)}
        idle = [group[0].name for group in self.groups if group[0].name not in used]
        if idle:
            names = ", ".join(idle)
            log.warning("pp=%d: no layers for %s; use fewer stages", self.parallel.pp, names)

    def n_offloaded(self, n_layer_all: int) -> int:
        """Return the number of layers on devices other than the host; the output counts as one."""
        if not self.offload:
            return 0
        most = n_layer_all + 1
        return most if self.n_gpu_layers < 0 else min(self.n_gpu_layers, most)

    def layers(self, n_layer_all: int) -> list[Device]:
        """Return the device of each layer, then the output's."""
        n = self.n_offloaded(n_layer_all)
        kept = [self.host] * (n_layer_all + 1 - n)
        if n == 0:
            return kept
        groups, limits = self.groups, self._limits()
        return kept + [groups[bisect_right(limits, i / n)][0] for i in range(n)]

    @property
    def shares_layers(self) -> bool:
        """True if several devices compute one layer."""
        return any(len(group) > 1 for group in self.groups)

    @property
    def group(self) -> tuple[Device, ...]:
        """Devices that share layers, the one with undivided tensors first. Includes the host if it
        has the same type, or a share in `tensor_split`."""
        alike = all(d.kind == self.host.kind for d in self.offload)
        asked = len(self.tensor_split) == len(self.devices) and any(self.tensor_split)
        return self.devices if alike or asked else self.offload

    @property
    def groups(self) -> tuple[tuple[Device, ...], ...]:
        """The devices of each pipeline stage, in order. They share the stage's layers; the first
        has tensors that are not split.

        BackendError if the number of devices differs from `parallel`.
        """
        if self.parallel is None:
            if self.split_mode in SHARING:
                return (self.group,)
            return tuple((d,) for d in self.offload)
        found, size = self.group, self.parallel.size
        if len(found) != self.parallel.n:
            raise BackendError(
                f"{self.parallel.pp} stages of {size} devices need {self.parallel.n} devices, "
                f"got {len(found)}: {', '.join(d.name for d in found)}; name that many with "
                "-dev (a device may be repeated), or change tp, pp or ep"
            )
        return tuple(found[i : i + size] for i in range(0, len(found), size))

    def shares(self) -> dict[str, float]:
        """Return the shares of the devices of all groups, by name."""
        devices = [d for group in self.groups for d in group]
        return {d.name: n for d, n in zip(devices, self._shares(devices), strict=True)}

    def _shares(self, devices: Sequence[Device]) -> list[float]:
        shares: Sequence[float] = self.tensor_split
        if not any(shares):
            shares = [d.memory()[0] or self.host.memory()[0] or 1 for d in devices]
            if self.shares_layers:
                shares = coarse(shares)
        if len(shares) != len(devices) or min(shares, default=0) < 0:
            raise BackendError(
                f"tensor_split must have {len(devices)} shares, one per device "
                f"({', '.join(d.name for d in devices)}), got {list(shares)}"
            )
        return [*shares]

    def _limits(self) -> list[float]:
        """Return the end of each group's share, as a fraction of the offloaded layers."""
        shares = self.shares()
        ends = list(accumulate(sum(shares[d.name] for d in group) for group in self.groups))
        return [end / ends[-1] for end in ends[:-1]]

    def get_chooser(self, layers: Sequence[Device]) -> Callable[[Tensor, Sequence[Tensor]], Device]:
        """Return a function from a weight and the nodes that read it to its device.

        layers  result of `layers`
        """

        def choose(t: Tensor, readers: Sequence[Tensor]) -> Device:
            return self.choice(t, readers, layers)[0]

        return choose

    def choice(
        self, t: Tensor, readers: Sequence[Tensor], layers: Sequence[Device]
    ) -> tuple[Device, str]:
        """Return the device of a weight, and the reason."""
        for pattern, device in self.overrides:
            if pattern.search(t.name):
                return device, _find_flag(pattern.pattern)
        device, why = _by_name(t, readers, layers, self.host)
        if device is not self.host:
            for node in readers:
                reason = device.why_not(node) if node.op in _BY_TYPE else ""
                if reason:
                    log.info(
                        "%s is placed on %s, because %s does not support it: %s",
                        t.name,
                        self.host.name,
                        device.name,
                        reason,
                    )
                    return self.host, f"{device.name} does not support {node.op}: {reason}"
        return device, why


# Ops that a device may support for some types of weights only.
_BY_TYPE = frozenset({"MUL_MAT", "MUL_MAT_ID", "GET_ROWS"})
_LAYER = re.compile(r"blk\.(\d+)\.")


def _by_name(
    t: Tensor, readers: Sequence[Tensor], layers: Sequence[Device], host: Device
) -> tuple[Device, str]:
    if (layer := _LAYER.search(t.name)) is not None:
        il = int(layer[1])  # blocks of a head may outnumber the layers
        return (layers[il], "layer") if il < len(layers) else (layers[-1], "output")
    if all(node.op == "GET_ROWS" for node in readers):  # large tables with few rows per token
        return host, "table"
    if t.name.startswith("token_embd.") or "output" in t.name:
        return layers[-1], "output"
    return layers[0], "first layer"


def _find_flag(pattern: str) -> str:
    """Return the option that created a rule."""
    if pattern == EXPERTS:
        return "-cmoe"
    for end, flag in ((EXPERTS, "-ncmoe"), (DENSE, "-ncffn")):
        if re.fullmatch(r"blk\\\.\d+", pattern.removesuffix(end)) and pattern.endswith(end):
            return flag
    return f"-ot {pattern if len(pattern) <= 32 else f'{pattern[:30]}..'}"


def coarse(shares: Sequence[float]) -> list[float]:
    """Round shares to sixteenths of the largest, so that small differences, as in free memory, do
    not change how sums are split."""
    largest = max(shares)
    return [round(PARTS * x / largest) or PARTS * x / largest for x in shares]


def arrange_devices(
    devices: tuple[Device, ...], split_mode: str, main_gpu: int, shares: Sequence[float]
) -> tuple[tuple[Device, ...], tuple[float, ...]]:
    """Return the devices that a split mode uses, the main one first, and their shares.

    BackendError if main_gpu is out of range.
    """
    n = max(1, len(devices) - 1)  # the last is the host
    if split_mode == "graph" and len(devices) > 1:
        n = len(Placement(devices, tensor_split=tuple(shares)).group)
    if main_gpu >= n:
        names = ", ".join(d.name for d in devices[:n])
        raise BackendError(f"main_gpu must be from 0 to {n - 1}, one of: {names}; got {main_gpu}")
    if split_mode == "none":
        return (devices[main_gpu], *devices[n:]), ()
    if split_mode not in SHARING:
        return devices, tuple(shares)
    order = [main_gpu, *(i for i in range(len(devices)) if i != main_gpu)]
    return tuple(devices[i] for i in order), tuple(shares[i] for i in order if i < len(shares))


def overrides(
    rules: Mapping[str, str] | Iterable[tuple[str, str]], n_cpu_moe: int, devices: Sequence[Device]
) -> tuple[Override, ...]:
    """Parse rules (regular expression, device name), and add rules for experts of first layers.

    Raises BackendError for an unused device or an invalid regular expression.
    """
    found: list[Override] = []
    by_name = {d.name.lower(): d for d in devices}
    pairs = rules.items() if isinstance(rules, Mapping) else rules
    for text, name in pairs:
        device = by_name.get(name.lower())
        if device is None:
            raise BackendError(
                f"-ot {text}={name}: expected REGEX=DEVICE with a device in use: "
                f"{', '.join(by_name)}; {gpu_hint()}"
            )
        try:
            found.append((re.compile(text), device))
        except re.error as e:
            raise BackendError(f"-ot {text}={name}: not a regular expression: {e}") from None
    found += [(re.compile(rf"blk\.{i}{EXPERTS}"), devices[-1]) for i in range(n_cpu_moe)]
    return tuple(found)


def host_rules(host: Device, cpu_moe: bool, n_cpu_ffn: int) -> Iterator[Override]:
    """Yield rules that keep all experts, and the first layers' dense networks, on `host`."""
    if cpu_moe:
        yield re.compile(EXPERTS), host
    for i in range(n_cpu_ffn):
        yield re.compile(rf"blk\.{i}{DENSE}"), host


def warn_of_idle_rules(rules: Mapping[str, str], weights: Iterable[Tensor]) -> None:
    """Warn of `tensor_overrides` that match no weight."""
    names = [t.name for t in weights]
    for text, name in rules.items():
        if not any(re.search(text, weight) for weight in names):
            log.warning(
                "-ot %s=%s has no effect: no weight name matches (names are like %s)",
                text,
                name,
                names[-1],
            )
