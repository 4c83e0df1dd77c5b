"""Types by measured loss (`quantize --bpw`, `--size`, `--kld`).

A tensor's sensitivity is the divergence of predictions if only this tensor is quantized, divided by
the error of its values. The loss of a type is its error times the sensitivity. Losses are added.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from ggml_py.errors import GGUFError
from ggml_py.types import BY_NAME, GGMLType
from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.gguf.file_types import GUESSED, FileType, guess_type
from llama_py.gguf.fingerprint import fingerprint
from llama_py.gguf.forms import file_size
from llama_py.gguf.tensor_info import ComputedTensor
from llama_py.model import Model
from llama_py.quantize.allowed import is_allowed
from llama_py.quantize.budget import Candidate, choose_types
from llama_py.quantize.errors import (
    get_importance,
    list_types,
    matrices,
    measure_errors,
    round_trip,
)
from llama_py.quantize.imatrix.file import Imatrix
from llama_py.quantize.mix import EMBEDDINGS, OUTPUT
from llama_py.quantize.model import QuantizedModel
from llama_py.quantize.plan import Wishes
from llama_py.quantize.rows import writer
from llama_py.support.whole_file import replace_file
from llama_py_tools.command.progress import Progress
from llama_py_tools.models import session

Floats = npt.NDArray[np.float32]
N_CTX, N_WINDOWS = 256, 4
PROBE = 3.5  # bits per value of the type that a tensor is measured with


class Losses(TypedDict):
    """Errors of a tensor by type, and its sensitivity."""

    errors: dict[str, float]
    sensitivity: float | None


class Predictor:
    """Predicts the same windows of a text with changed models."""

    def __init__(self, file: GGUFFile, text: str) -> None:
        self.file = file
        with Model(self._replace_tensors({})) as model:
            tokens = model.tokenize(text)
        self.windows = [tokens[i : i + N_CTX] for i in range(0, len(tokens) - N_CTX + 1, N_CTX)]
        self.windows = self.windows[:: max(1, len(self.windows) // N_WINDOWS)][:N_WINDOWS]
        if not self.windows:
            raise GGUFError(
                f"--text: {len(tokens)} tokens are too few; at least {N_CTX} are needed"
            )
        self.base = self.predict({})

    def _replace_tensors(self, changes: Mapping[str, TensorInfo]) -> GGUFFile:
        tensors = {name: changes.get(name, t) for name, t in self.file.tensors.items()}
        return GGUFFile.from_values(self.file.path, self.file.metadata.stored_values, tensors)

    def predict(self, changes: Mapping[str, TensorInfo]) -> Floats:
        """Return log probabilities [n_windows, n_ctx, n_vocab] for changed tensors."""
        found = []
        with Model(self._replace_tensors(changes), progress=False) as model:
            context = model.context(n_ctx=N_CTX, n_batch=N_CTX, n_ubatch=N_CTX)
            for window in self.windows:
                context.clear()
                logits = context.decode(window, "all")
                high = logits.max(axis=1, keepdims=True)
                total = np.log(np.exp(logits - high).sum(axis=1, keepdims=True))
                found.append(logits - high - total)
            context.close()
        return np.stack(found)

    def divergence(self, changes: Mapping[str, TensorInfo]) -> float:
        """Return the mean KL divergence from the unchanged model."""
        other, total = self.predict(changes), 0.0
        for base, changed in zip(self.base, other, strict=True):
            total += float((np.exp(base) * (base - changed)).sum(dtype=np.float64)) / len(base)
        return max(0.0, total / len(self.base))


def quantize_values(t: TensorInfo, type: GGMLType, importance: Floats | None) -> TensorInfo:
    """Return the tensor in its own type, with values that another type can have."""

    def compute() -> npt.NDArray[np.uint8]:
        parts = [
            writer(t.type, False)(
                round_trip(x, type, None if importance is None else importance[matrix]), None
            ).reshape(-1)
            for matrix, x in matrices(t)
        ]
        return np.concatenate(parts)

    return ComputedTensor(t.name, t.type, t.ne, t.nbytes, compute)


def find_candidates(
    file: GGUFFile,
    tensors: Sequence[TensorInfo],
    text: str,
    imatrix: Imatrix | None,
    portable: bool,
    kept: Path | None,
) -> dict[str, list[Candidate]]:
    """Return the types of tensors with their losses; the file `kept` stores measured losses."""
    key = _key(file, imatrix)
    known = _read(kept, key)
    progress, predictor = Progress("measuring"), None
    found: dict[str, list[Candidate]] = {}
    try:
        for i, t in enumerate(tensors):
            progress(i, len(tensors), t.name)
            importance = get_importance(t, imatrix)
            types = list_types(t, portable, importance is not None)
            if not types:
                continue
            one = known.setdefault(t.name, {"errors": {}, "sensitivity": None})
            missing = [type for type in types if type.name not in one["errors"]]
            one["errors"] |= measure_errors(t, missing, importance)
            sensitivity = one["sensitivity"]
            if sensitivity is None:
                predictor = predictor or Predictor(file, text)
                probe = min(types, key=lambda type: abs(_bits(type) - PROBE))
                loss = predictor.divergence({t.name: quantize_values(t, probe, importance)})
                error = one["errors"][probe.name]
                one["sensitivity"] = sensitivity = loss / error if error else 0.0
            if missing and kept is not None:
                _write(kept, key, known)
            found[t.name] = [
                Candidate(file_size(type, t.ne), sensitivity * one["errors"][type.name], type.name)
                for type in types
            ]
            t.let_go()
    finally:
        progress.close()
    return found


def _bits(type: GGMLType) -> float:
    return 8 * type.type_size / type.block_size


def _key(file: GGUFFile, imatrix: Imatrix | None) -> str:
    """Return a digest of the model and the importance matrix."""
    digest = blake2b(fingerprint(file).encode(), digest_size=16)
    for name, entry in sorted(imatrix.entries.items()) if imatrix else ():
        digest.update(name.encode() + entry.sums.tobytes())
    return digest.hexdigest()


def _read(path: Path | None, key: str) -> dict[str, Losses]:
    if path is None or not path.is_file():
        return {}
    try:
        kept = json.loads(path.read_text("utf-8"))
        if kept["key"] == key:
            return dict(kept["tensors"])
    except (ValueError, KeyError, TypeError) as e:
        raise GGUFError(f"{path}: not a file of sensitivities ({e}); use another name") from None
    raise GGUFError(
        f"{path}: sensitivities of another model or importance matrix; use another name"
    )


def _write(path: Path, key: str, tensors: Mapping[str, Losses]) -> None:
    replace_file(path, [json.dumps({"key": key, "tensors": tensors}, indent=1).encode()])


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Options for types by measured loss; bpw, size or kld is set.

    bpw          bits per value of the file's tensors
    size         bytes of its tensors
    kld          mean KL divergence from the source
    portable     only types of llama.cpp
    text         file with a text to predict
    sensitivity  file of losses
    """

    bpw: float | None = None
    size: int | None = None
    kld: float | None = None
    portable: bool = False
    text: str = ""
    sensitivity: str = ""

    def choose(self, file: GGUFFile, wishes: Wishes, imatrix: Imatrix | None) -> Wishes:
        """Return the wishes with a type for each tensor that may be quantized.

        Raises GGUFError for an unreadable text, and if no types fit the budget.
        """
        model = QuantizedModel.from_file(file)
        tensors = [
            t
            for t in file.tensors.values()
            if is_allowed(t, model, wishes.leave_output)
            and (wishes.allow_requantize or not t.type.is_quantized)
        ]
        try:
            text = Path(self.text).read_text("utf-8", "replace")
        except OSError as e:
            raise GGUFError(f"--text {self.text}: {e.strerror}") from None
        kept = Path(self.sensitivity) if self.sensitivity else None
        found = find_candidates(file, tensors, text, imatrix, self.portable, kept)
        if not found:
            raise GGUFError(f"{file.path}: no tensors to quantize; use an F32, F16 or BF16 file")
        limit = self.size
        if self.bpw is not None:
            limit = int(self.bpw / 8 * sum(math.prod(t.ne) for t in file.tensors.values()))
        if limit is not None:
            limit -= sum(t.nbytes for t in file.tensors.values() if t.name not in found)
        chosen = choose_types(found, limit, self.kld)
        session.tell(f"expected KLD: {sum(c.loss for c in chosen.values()):.4g}")
        types = {name: BY_NAME[c.type] for name, c in chosen.items()}
        number = guess_type(types) & ~GUESSED
        most = Counter(types.values()).most_common(1)[0][0]
        return replace(
            wishes,
            type=FileType("BPW", number, most),
            tensor_types=[
                *wishes.tensor_types,
                *((f"^{re.escape(name)}$", type) for name, type in types.items()),
            ],
            output_type=wishes.output_type or types.get(OUTPUT),
            embedding_type=wishes.embedding_type or types.get(EMBEDDINGS[0]),
        )
