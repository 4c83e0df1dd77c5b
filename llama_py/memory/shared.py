"""Read-only caches of another context, for a draft model (llama-kv-cache.cpp, `other`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ggml_py.backend import set_tensor
from ggml_py.tensor import Tensor
from ggml_py.types import F16
from llama_py.batch import UBatch
from llama_py.batch.splitter import BatchSplitter
from llama_py.hparams.layer_shape import Window
from llama_py.memory.group import MemoryGroup
from llama_py.memory.group_context import GroupContext
from llama_py.memory.kv import KVCache, KVCacheContext
from llama_py.memory.kv_slots import SlotInfo
from llama_py.memory.mask import MaskRule, kq_mask


class SharedMemory(MemoryGroup):
    """Read-only memory of another context's model. Tokens take no cells, so several may have the
    same position, first the one after the stored tokens; cells are never removed.
    """

    def __init__(
        self, other: MemoryGroup, layers: Mapping[int, int], windows: Mapping[int, Window | None]
    ) -> None:
        """Map `layers` to layers of the other model; `windows`: sliding window of each layer."""
        super().__init__({}, None, {il: other.of[read] for il, read in layers.items()})
        self._other, self._layers = other, dict(layers)
        self._windows = {self.of[il]: window for il, window in windows.items()}

    @property
    def n_stream(self) -> int:
        return self._other.n_stream

    @property
    def streams(self) -> Sequence[int]:
        return self._other.streams

    def _ways_to_split(
        self, splitter: BatchSplitter, n_ubatch: int, whole_seqs: bool
    ) -> Iterator[Callable[[], UBatch | None]]:
        if self.n_stream > 1:
            yield lambda: splitter.split_equal(n_ubatch, True)
        else:
            yield lambda: splitter.split_simple(n_ubatch)

    def _place(self, ubatches: list[UBatch]) -> GroupContext:
        places = [SlotInfo([*u.streams] or [0], []) for u in ubatches]
        return self._walks(places, ubatches)

    def init_full(self, n_seqs: int | None = None) -> GroupContext:
        streams = [*range(min(self.n_stream, n_seqs or self.n_stream))]
        return self._walks([SlotInfo(streams, [])], [])

    def _walks(self, places: list[SlotInfo], ubatches: list[UBatch]) -> GroupContext:
        walks = {
            name: SharedWalk(self._other.caches[name], places, ubatches, self._layers, window)
            for name, window in self._windows.items()
        }
        return GroupContext(self.of, walks, None, ubatches)

    def seq_pos_min(self, seq_id: int) -> int:
        return self._other.seq_pos_min(seq_id)

    def seq_pos_max(self, seq_id: int) -> int:
        return self._other.seq_pos_max(seq_id)


class SharedWalk(KVCacheContext):
    """Batch that attends to another context's cache."""

    def __init__(
        self,
        kv: KVCache,
        places: list[SlotInfo],
        ubatches: list[UBatch],
        layers: Mapping[int, int],
        window: Window | None,
    ) -> None:
        super().__init__(kv, places, ubatches)
        self._layers, self._window = layers, window

    def apply(self) -> None:
        self._n_kv = self.kv.get_n_kv(self.place)
        self._n_pos = None

    @property
    def is_settled(self) -> bool:
        return False

    def get_k(self, il: int) -> Tensor:
        return super().get_k(self._layers[il])

    def get_v(self, il: int) -> Tensor:
        return super().get_v(self._layers[il])

    def set_input_kq_mask(
        self, dst: Tensor, ubatch: UBatch, causal: bool, alibi: bool = False, spans: bool = False
    ) -> None:
        rule = MaskRule(causal, self._window, alibi, spans)
        streams = [self.kv.cells[s] for s in self.place.strm]
        set_tensor(dst, kq_mask(rule, dst.type is F16, dst.ne[0], ubatch, streams))
