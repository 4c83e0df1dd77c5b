"""Sharing of a model's layers by devices."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

from ggml_py.backend import Device
from ggml_py.ops import mul, mul_mat
from ggml_py.tensor import Tensor
from llama_py.gguf.tensor_part import TensorCut
from llama_py.graph.linear import ExpertLinear, Linear
from llama_py.hparams import HParams
from llama_py.hparams.shard import Shard, apportion
from llama_py.loading.split.block import SplitBlock, SplitLinear, join_blocks
from llama_py.loading.split.pieces import TensorPiece, list_ranges, why_not
from llama_py.loading.split.spread import Group
from llama_py.loading.split.walk import (
    attributes,
    collect_tensors,
    collect_values,
    is_block,
    is_made_of,
)
from llama_py.loading.split.weights import PartWeights
from llama_py.models.trunks.architecture import Architecture
from llama_py.weights import Weights, format_shape
from llama_py.weights.declarations import DeviceOf
from llama_py.weights.parallel import Parallel
from llama_py.weights.placement import Placement

log = logging.getLogger("llama_py")

_STEP = 32  # rows of a matrix that are split as a unit
_UNSPLIT = object()


def split(arch: Architecture, w: Weights, place: Placement, device_of: DeviceOf) -> None:
    """Split layers among the devices of each of place.groups, by place.split_mode.

    device_of   returns the device of a whole tensor, from the nodes that read it: a group shares
                tensors of its first device
    """
    if arch.hp.hadamard is not None:
        raise arch.hp.hadamard.refuse("devices cannot share its layers", "use --split-mode layer")
    shares, first = place.shares(), 0
    layers = place.layers(arch.hp.n_layer_all)
    for devices in place.groups:
        its = frozenset(il for il, d in enumerate(layers) if d is devices[0])
        stage = DeviceStage(devices, [shares[d.name] for d in devices], first, its, place.parallel)
        first += len(devices)
        if len(devices) == 1:
            continue
        if place.split_mode == "row":
            _Rows(arch, w, stage, device_of).split(collect_values(arch))
        else:
            _Graph(arch, w, stage, device_of).split()


@dataclass(frozen=True, slots=True)
class DeviceStage:
    """Devices that share layers.

    shares  relative share of each device
    first   number of devices in earlier stages
    layers  numbers of the layers
    parallel  they share heads, experts, or both; None: heads and FFN dimensions of all blocks
    """

    devices: Sequence[Device]
    shares: Sequence[float]
    first: int
    layers: frozenset[int]
    parallel: Parallel | None = None

    @property
    def by_expert(self) -> bool:
        return self.parallel is not None and self.parallel.ep > 1

    @property
    def experts_alone(self) -> bool:
        return self.parallel is not None and self.parallel.tp == 1

    def group(self, hparams: Sequence[HParams]) -> Group:
        return Group(hparams, [{} for _ in self.devices], self.first, self.layers)


class _Splitter:
    def __init__(
        self, arch: Architecture, w: Weights, stage: DeviceStage, device_of: DeviceOf
    ) -> None:
        self.arch, self.w, self.stage, self.device_of = arch, w, stage, device_of
        self.devices, self.shares = stage.devices, stage.shares

    def is_elsewhere(self, tensors: Sequence[Tensor]) -> bool:
        """Return True if matrices among these are placed on another device than the main one."""
        matrices = [t for t in tensors if t.n_rows > 1]
        return any(self.device_of(t, ()) is not self.devices[0] for t in matrices)

    def cut(self, pieces: Sequence[tuple[int, TensorPiece]]) -> Iterator[TensorCut]:
        """Yield a tensor's part for each of its pieces: (number of a device, its piece)."""
        info = self.w.info(pieces[0][1].name)
        assert info is not None
        for (number, piece), ranges in zip(
            pieces, list_ranges([p for _, p in pieces]), strict=True
        ):
            yield TensorCut(piece.tensor, self.devices[number], info, piece.dim, tuple(ranges))


class _Rows(_Splitter):
    """Splitter of matrices by rows."""

    def __init__(
        self, arch: Architecture, w: Weights, stage: DeviceStage, device_of: DeviceOf
    ) -> None:
        super().__init__(arch, w, stage, device_of)
        self.group = stage.group([arch.hp] * len(self.devices))

    def split(self, owners: Sequence[Any]) -> None:
        """Split every `Linear` that is an attribute of an owner."""
        for owner in owners:
            if isinstance(owner, Linear | ExpertLinear | Tensor) or _is_frozen(owner):
                continue
            for name, value in attributes(owner).items():
                if isinstance(value, Linear):
                    setattr(owner, name, self.shared(value))
                elif isinstance(value, list) and any(isinstance(v, Linear) for v in value):
                    shared = [self.shared(v) if isinstance(v, Linear) else v for v in value]
                    setattr(owner, name, shared)

    def shared(self, linear: Linear) -> Linear:
        """Return a matrix split by rows, or unchanged if a device would get no rows."""
        weight = linear.weight
        n_rows = apportion(weight.ne[1] // _STEP, self.shares)
        if type(linear) is not Linear or min(n_rows) == 0:
            return linear
        product = mul_mat(weight, Tensor(ne=(weight.ne[0],)))
        if self.device_of(weight, [product]) is not self.devices[0]:
            return linear
        sizes = [n * _STEP for n in n_rows]
        sizes[-1] += weight.ne[1] % _STEP
        pieces = []
        for i, n in enumerate(sizes):
            t = Tensor(weight.type, (weight.ne[0], n), name=f"{weight.name}.{i}")
            pieces.append((i, TensorPiece(t, weight.name, 1, (n,))))
        self.w.place_rows(self.cut(pieces), weight, self.devices[0])
        return SplitLinear(linear, [p.tensor for _, p in pieces], self.group)


def _is_frozen(owner: object) -> bool:
    """Return True if the object is a frozen dataclass; no layer is, only pooling."""
    return is_dataclass(owner) and bool(type(owner).__dataclass_params__.frozen)  # type: ignore[union-attr]


class _Graph(_Splitter):
    """Splits blocks by heads and FFN dimensions, the head by rows."""

    def __init__(
        self, arch: Architecture, w: Weights, stage: DeviceStage, device_of: DeviceOf
    ) -> None:
        super().__init__(arch, w, stage, device_of)
        shares = [
            Shard(self.shares, i, self._find_block_size, self._has, stage.by_expert)
            for i in range(len(self.devices))
        ]
        self.weights = [PartWeights(w, x, stage.first + i) for i, x in enumerate(shares)]
        self.parts = [
            type(arch)(arch.hp.shared(share), part, arch.load_mtp)
            for share, part in zip(shares, self.weights, strict=True)
        ]
        self.group = stage.group([part.hp for part in self.parts])
        self.used: list[Any] = []  # blocks: a list of parts each
        self.told: set[str] = set()

    def _find_block_size(self, stem: str) -> int:
        """Return the largest quantization block size in matrices named `stem`."""
        end = f".{stem}.weight"
        sizes = (t.type.block_size for name, t in self.w.infos.items() if name.endswith(end))
        return max(sizes, default=1)

    def _has(self, il: int, stem: str) -> bool:
        end = f"blk.{il}.{stem}.weight" if il >= 0 else f".{stem}.weight"
        return any(name.endswith(end) for name in self.w.infos)

    def split(self) -> None:
        whole = {t.name: t for t in collect_tensors(self.arch)}
        self._visit(self.arch, self.parts)
        self._warn_of_idle()
        cut = self._cut_blocks()
        left = collect_tensors(self.arch)
        kept = {id(t) for t in left}
        replaced = [t for name, t in whole.items() if name in cut and id(t) not in kept]
        self._replicate(left)
        self.w.place_parts((), replaced)
        if isinstance(getattr(self.arch, "output", None), Linear) and not self.stage.experts_alone:
            rows = _Rows(self.arch, self.w, self.stage, self.device_of)
            rows.group = self.group
            self.arch.output = rows.shared(self.arch.output)  # type: ignore[attr-defined]

    def _warn_of_idle(self) -> None:
        """Warn of devices that have a share, and no part of some block."""
        idle = [
            sum(used[i] is None for used in self.used) if self.shares[i] else 0
            for i in range(len(self.devices))
        ]
        if any(idle):
            log.warning(
                "%d devices share layers, but %d of %d blocks have no part for %s, because they "
                "have fewer heads, experts or FFN blocks than devices; use fewer devices",
                len(idle),
                max(idle),
                len(self.used),
                ", ".join(d.name for d, n in zip(self.devices, idle, strict=True) if n),
            )

    def _visit(self, whole: Any, parts: Sequence[Any]) -> None:
        """Replace blocks by split blocks, if possible, in all objects with layers."""
        items = attributes(whole)
        for name, value in items.items():
            if not is_made_of(value) or isinstance(value, Tensor):
                continue
            others: list[Any] = [attributes(part)[name] for part in parts]
            if isinstance(value, list):
                for i, (one, *rest) in enumerate(zip(value, *others, strict=True)):
                    value[i] = self._replacement(one, rest)
            else:
                new = self._replacement(value, others)
                if new is not value:
                    setattr(whole, name, new)
        if names := getattr(whole, "side_by_side", ()):
            whole.both = join_blocks([getattr(whole, name) for name in names])

    def _replacement(self, value: Any, parts: Sequence[Any]) -> Any:
        if not is_made_of(value) or isinstance(value, Tensor | Linear | SplitBlock):
            return value
        if is_block(value):
            return self._shared(value, parts)
        if type(value).__module__.partition(".")[0] != "builtins":
            self._visit(value, parts)
        return value

    def _shared(self, block: Any, parts: Sequence[Any]) -> Any:
        """Return a block shared by devices, or the block unchanged, logging the reason."""
        tensors = collect_tensors(block)
        if not tensors or self.is_elsewhere(tensors):
            return block
        if self.stage.experts_alone and not any(
            isinstance(x, ExpertLinear) for x in collect_values(block)
        ):
            return block
        why = "partial results of this block cannot be added"
        if vars(type(block)).get("parts_keep", _UNSPLIT) is not _UNSPLIT:
            used, why = self._select_parts(parts)
        if why:
            self._tell(block, tensors, why)
            return block
        self._note(block, used)
        return SplitBlock(used, self.group)

    def _select_parts(self, parts: Sequence[Any]) -> tuple[list[Any], str]:
        """Return the parts with tensors, None for others; and a reason against using them, or
        ""."""
        pieces = [self._pieces(i, part) for i, part in enumerate(parts)]
        problems = [f"{p.name}: {p.problem}" for own in pieces for p in own if p.problem]
        if problems:
            return [], problems[0]
        idle = [[p.idle for p in own if p.is_sum] for own in pieces]
        used = [None if any(i) else part for i, part in zip(idle, parts, strict=True)]
        if any(any(i) and not all(i) for i in idle):
            return [], "one device would receive only some of its matrices"
        if sum(part is not None for part in used) < 2:
            return [], self._too_small(pieces[0])
        if any(p.is_sum and p.dim is None for own in pieces for p in own):
            return [], "every device would have a whole matrix and add the same products"
        if not all(any(p.is_partial for p in own) for own in pieces):
            return [], "it has no heads or FFN dimensions to split"
        return used, self._misfit([own for own, u in zip(pieces, used, strict=True) if u])

    def _pieces(self, number: int, part: Any) -> list[TensorPiece]:
        own = self.weights[number].pieces
        return [own[id(t)] for t in collect_tensors(part) if id(t) in own]

    def _too_small(self, pieces: Sequence[TensorPiece]) -> str:
        for p in pieces:
            if p.is_sum and (info := self.w.info(p.name)) is not None:
                return (
                    f"{p.name} [{format_shape(info.ne)}] of {info.type} has too few heads or "
                    f"blocks to split over {len(self.devices)} devices"
                )
        return "no tensor can be split"

    def _misfit(self, pieces: Sequence[Sequence[TensorPiece]]) -> str:
        by_name: dict[str, list[TensorPiece]] = {}
        for own in pieces:
            for p in own:
                by_name.setdefault(p.name, []).append(p)
        for name, found in by_name.items():
            info = self.w.info(name)
            if info is not None and (why := why_not(found, info)):
                return f"{name} [{format_shape(info.ne)}]: {why}"
        return ""

    def _note(self, block: Any, used: list[Any]) -> None:
        """Note a split block: only one part adds biases, and each device stores its memory."""
        first = next(part for part in used if part is not None)
        for number, part in enumerate(used):
            if part is not None and part is not first:
                own = self.weights[number].pieces
                for linear in collect_values(part):
                    if isinstance(linear, Linear | ExpertLinear) and (
                        (p := own.get(id(linear.weight))) is not None and p.is_partial
                    ):  # also for experts: all parts have the whole bias
                        linear.bias = None
        self.used.append(used)
        keeps = type(block).parts_keep
        for kind in keeps if isinstance(keeps, tuple) else [] if keeps is None else [keeps]:
            il = _find_layer(collect_tensors(block))
            with_part = [
                None if part is None else arch for part, arch in zip(used, self.parts, strict=True)
            ]
            self.arch.parts[il, kind] = [None] * self.stage.first + with_part

    def _cut_blocks(self) -> set[str]:
        """Give every piece in use its bytes; the names of the tensors that were cut."""
        by_name: dict[str, dict[int, TensorPiece]] = {}
        for used in self.used:
            for number, part in enumerate(used):
                for p in [] if part is None else self._pieces(number, part):
                    by_name.setdefault(p.name, {})[number] = p
        for pieces in by_name.values():
            self.w.place_parts(self.cut([*pieces.items()]), ())
        return {*by_name}

    def _replicate(self, left: Sequence[Tensor]) -> None:
        """Copy norms between blocks to every device."""
        cut = [
            {id(p) for used in self.used if used[i] for p in self._pieces(i, used[i])}
            for i in range(len(self.devices))
        ]
        for t in left:
            if t.n_rows > 1 or self.device_of(t, [mul(Tensor(ne=t.ne), t)]) is not self.devices[0]:
                continue
            for number in range(1, len(self.devices)):
                own = self.weights[number]
                p = own.by_name(t.name)
                if p is None or p.dim is not None or p.problem:
                    continue
                if id(p) not in cut[number]:
                    self.w.place_parts(self.cut([(number, p)]), ())
                self.group.replicas[number][t.name] = p.tensor

    def _tell(self, block: Any, tensors: Sequence[Tensor], why: str) -> None:
        """Log the reason once per type of block."""
        kind = type(block).__name__
        if kind not in self.told:
            self.told.add(kind)
            largest = min(tensors, key=lambda t: (-t.nbytes, t.name))
            log.warning(
                "split_mode graph: %s, with %s [%s], is not split and runs on %s: %s",
                kind,
                largest.name,
                format_shape(largest.ne),
                self.devices[0].name,
                why,
            )


def _find_layer(tensors: Sequence[Tensor]) -> int:
    """Return the number in the names `blk.N.`, the last if they differ."""
    names = (t.name.split(".") for t in tensors)
    return max(int(parts[parts.index("blk") + 1]) for parts in names if "blk" in parts)
