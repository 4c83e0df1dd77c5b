"""The tensors of one device's part of a model: some of each tensor that it declares smaller than
the file has it."""

from __future__ import annotations

from collections.abc import Sequence

from ggml_py.tensor import Tensor, shape4
from llama_py.linear import Norm, NormKind
from llama_py.share import Share
from llama_py.split.pieces import Piece
from llama_py.weights import Bias, Sections, Weights


class PartWeights(Weights):
    """Finds tensors as `Weights` does; what it finds are pieces of the file's.

    pieces   by id of the tensor
    """

    def __init__(self, whole: Weights, share: Share) -> None:
        super().__init__(whole.infos, whole.where)
        self.share = share
        self.pieces: dict[int, Piece] = {}
        self._by_name: dict[str, Piece] = {}

    def scope(self, prefix: str, il: int = -1) -> Weights:
        part = super().scope(prefix, il)
        assert isinstance(part, PartWeights)
        part.share, part.pieces, part._by_name = self.share, self.pieces, self._by_name
        return part

    def _find(
        self, name: str, ne: tuple[int, ...], other: tuple[int, ...], needed: bool,
        sections: Sections = (),
    ) -> Tensor | None:  # fmt: skip
        found = self.info(name)
        if found is None:
            return None
        full = self.prefix + name
        piece = self._by_name.get(full)
        if piece is None:
            whole = found.ne
            shape = min(shape4(ne), shape4(other or ne), key=lambda s: len(_different(s, whole)))
            tensor = Tensor(found.type, shape, name=f"{full}.{self.share.part}")
            piece = self._by_name[full] = Piece(tensor, full, None, ())
            stem = name.removesuffix(".weight")
            piece.idle, piece.is_sum = self.share.knows(self.il, stem)
            self._cut(piece, whole, shape)
            self.pieces[id(tensor)] = piece
        if piece.dim is not None and (sections or not piece.sections):
            piece.sections = tuple(sections) or (piece.tensor.ne[piece.dim],)
        return piece.tensor

    def by_name(self, name: str) -> Piece | None:
        """The piece of a tensor of the file, if it was declared."""
        return self._by_name.get(name)

    def _cut(self, piece: Piece, whole: Sequence[int], shape: Sequence[int]) -> None:
        different = _different(whole, shape)
        if len(different) > 1:
            piece.problem = f"{list(shape)} is no part of {list(whole)}"
        elif different:
            piece.dim = different[0]

    def norm(self, stem: str, *ne: int, kind: NormKind = "rms", bias: Bias = False) -> Norm:
        norm = super().norm(stem, *ne, kind=kind, bias=bias)
        piece = self.pieces.get(id(norm.weight))
        if piece is not None and piece.dim == 0:
            piece.problem = "it is of a norm over what devices would share"
        return norm

    def tied(self, name: str) -> Tensor:
        return self.tensor(name)


def _different(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """The dimensions in which two shapes differ."""
    return [i for i in range(4) if a[i] != b[i]]
