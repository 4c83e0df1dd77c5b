"""Tensors of one device's part of a model: pieces of tensors that are declared smaller than in the
file."""

from __future__ import annotations

from collections.abc import Sequence

from ggml_py.tensor import Tensor, shape4
from llama_py.graph.linear import ExpertLinear, Norm, NormKind
from llama_py.hparams.shard import Shard
from llama_py.loading.split.pieces import TensorPiece
from llama_py.weights import Bias, Sections, Weights


class PartWeights(Weights):
    """Declarations like `Weights`, with pieces of the file's tensors.

    number   index of the device, part of the names
    pieces   piece by id of its tensor
    """

    def __init__(self, whole: Weights, share: Shard, number: int) -> None:
        super().__init__(whole.infos, whole.source, whole.reference_engine)
        self.share, self.number = share, number
        self.pieces: dict[int, TensorPiece] = {}
        self._by_name: dict[str, TensorPiece] = {}

    def scope(self, prefix: str, il: int = -1) -> Weights:
        part = super().scope(prefix, il)
        assert isinstance(part, PartWeights)
        part.share, part.number = self.share, self.number
        part.pieces, part._by_name = self.pieces, self._by_name
        return part

    def _find(
        self,
        name: str,
        ne: tuple[int, ...],
        other: tuple[int, ...],
        needed: bool,
        sections: Sections = (),
        shaped: tuple[int, ...] = (),
    ) -> Tensor | None:
        found = self.info(name)
        if found is None:
            return None
        full = self.prefix + name
        piece = self._by_name.get(full)
        if piece is None:
            whole = found.ne
            shape = min(shape4(ne), shape4(other or ne), key=lambda s: len(_different(s, whole)))
            tensor = Tensor(found.type, shape, name=f"{full}.{self.number}")
            piece = self._by_name[full] = TensorPiece(tensor, full, None, ())
            stem = name.removesuffix(".weight")
            piece.idle, piece.is_sum = self.share.knows(self.il, stem)
            self._cut(piece, whole, shape)
            self.pieces[id(tensor)] = piece
        if piece.dim is not None and (sections or not piece.sections):
            piece.sections = tuple(sections) or (piece.tensor.ne[piece.dim],)
        return piece.tensor

    def by_name(self, name: str) -> TensorPiece | None:
        """Return the piece of a file's tensor, if it was declared."""
        return self._by_name.get(name)

    def _cut(self, piece: TensorPiece, whole: Sequence[int], shape: Sequence[int]) -> None:
        different = _different(whole, shape)
        if len(different) > 1:
            piece.problem = f"shape {list(shape)} is not a part of {list(whole)}"
        elif different:
            piece.dim = different[0]

    def experts(
        self,
        stem: str,
        n_in: int,
        n_out: int,
        n_expert: int,
        *,
        bias: Bias = False,
        scaled: bool = True,
        sections: Sections = (),
    ) -> ExpertLinear:
        """Declare the device's whole experts, if experts are shared that way; biases and scales are
        complete, since expert numbers are global."""
        if not self.share.by_expert:
            return super().experts(
                stem, n_in, n_out, n_expert, bias=bias, scaled=scaled, sections=sections
            )
        first, n = self.share.experts(n_expert, self.il, stem)
        weight = self.tensor(f"{stem}.weight", n_in, n_out, n)
        bias_ = self.bias(stem, (n_out, n_expert), bias)
        scale = self.scale(stem, n_expert, weight, scaled)
        return ExpertLinear(weight, bias_, scale, first=first, of=n_expert)

    def norm(self, stem: str, *ne: int, kind: NormKind = "rms", bias: Bias = False) -> Norm:
        norm = super().norm(stem, *ne, kind=kind, bias=bias)
        piece = self.pieces.get(id(norm.weight))
        if piece is not None and piece.dim == 0:
            piece.problem = "it belongs to a norm over the dimension that devices would split"
        return norm

    def tied_tensor(self, name: str) -> Tensor:
        return self.tensor(name)


def _different(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """Return the dimensions with different sizes."""
    return [i for i in range(4) if a[i] != b[i]]
