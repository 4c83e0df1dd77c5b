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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from ggml_py.errors import GGUFError
from ggml_py.machine.host import logical_cpus
from ggml_py.types import BY_NAME, GGMLType
from llama_py.batch import Batch
from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.gguf.file_types import GUESSED, FileType, guess_type
from llama_py.gguf.fingerprint import fingerprint
from llama_py.gguf.forms import file_size
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
from llama_py.quantize.prune import order
from llama_py.quantize.rows import writer
from llama_py.support.whole_file import replace_file
from llama_py_tools.command.progress import Progress
from llama_py_tools.models import session

Floats = npt.NDArray[np.float32]
N_CTX, N_WINDOWS = 128, 4
PROBES = 96  # about the most measurements of a model
PROBE = 3.5  # bits per value of the type that a tensor is measured with


class Losses(TypedDict):
    """Errors of a tensor by type, and its sensitivity."""

    errors: dict[str, float]
    sensitivity: float | None


class Predictor:
    """Predicts the same windows of a text with changed weights.

    base  logits of the unchanged model [n, n_vocab], of the second half of each window
    """

    def __init__(self, file: GGUFFile, text: str) -> None:
        copy = GGUFFile.from_values(file.path, file.metadata.stored_values, file.tensors)
        self.model = Model(copy, progress=False)
        tokens = self.model.tokenize(text)
        windows = [tokens[i : i + N_CTX] for i in range(0, len(tokens) - N_CTX + 1, N_CTX)]
        self.windows = windows[:: max(1, len(windows) // N_WINDOWS)][:N_WINDOWS]
        if not self.windows:
            raise GGUFError(
                f"--text: {len(tokens)} tokens are too few; at least {N_CTX} are needed"
            )
        self.base = self._predict()

    def close(self) -> None:
        self.model.close()

    def _predict(self) -> Floats:
        outputs = [i >= N_CTX // 2 for i in range(N_CTX)]
        with self.model.context(n_ctx=N_CTX, n_batch=N_CTX, n_ubatch=N_CTX) as context:
            found = []
            for window in self.windows:
                context.clear()
                found.append(context.decode(Batch(window, outputs=outputs)))
        return np.concatenate(found)

    def divergence(self, changes: Mapping[str, npt.NDArray[np.uint8]]) -> float:
        """Return the mean KL divergence from the unchanged model with other bytes of tensors.

        With d the differences of logits, and p the unchanged probabilities, it is
        log E[exp(d - E[d])], which has no difference of large numbers.
        """
        with self.model.replaced_bytes(changes):
            other = self._predict()
        total = 0.0
        for base, changed in zip(self.base, other, strict=True):
            p = np.exp(base - base.max())
            p /= p.sum(dtype=np.float64)
            d = changed - base
            total += math.log1p(max(0.0, float(p @ np.expm1(d - p @ d))))
        return total / len(other)


def quantize_values(
    t: TensorInfo, type: GGMLType, importance: Floats | None
) -> npt.NDArray[np.uint8]:
    """Return the tensor's bytes in its own type, with values that another type can have."""
    store, trip = writer(t.type, False), round_trip(type, importance is not None)

    def convert(piece: tuple[int, Floats]) -> npt.NDArray[np.uint8]:
        weights = None if importance is None else importance[piece[0]]
        return store(trip(piece[1], weights), None).reshape(-1)

    with ThreadPoolExecutor(len(logical_cpus())) as pool:
        return np.concatenate([*pool.map(convert, matrices(t))])


def group_layers(tensors: Sequence[TensorInfo]) -> list[list[TensorInfo]]:
    """Return groups of tensors of one name and size in neighboring layers, at most about PROBES."""
    kinds: dict[tuple[str, tuple[int, ...]], list[TensorInfo]] = {}
    for t in sorted(tensors, key=lambda t: order(t.name)):
        kinds.setdefault((_kind(t), t.ne), []).append(t)
    n = -(-len(tensors) // PROBES)
    return [group[i : i + n] for group in kinds.values() for i in range(0, len(group), n)]


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
    importance = {t.name: get_importance(t, imatrix) for t in tensors}
    types = {t.name: list_types(t, portable, importance[t.name] is not None) for t in tensors}
    tensors = [t for t in tensors if types[t.name]]
    progress = Progress("errors of types")
    for i, t in enumerate(tensors):
        progress(i, len(tensors), t.name)
        one = known.setdefault(t.name, {"errors": {}, "sensitivity": None})
        missing = [type for type in types[t.name] if type.name not in one["errors"]]
        if missing:
            one["errors"] |= measure_errors(t, missing, importance[t.name])
            t.let_go()
            _write(kept, key, known)
    progress.close()
    groups = group_layers(tensors)
    groups = [g for g in groups if any(known[t.name]["sensitivity"] is None for t in g)]
    if groups:
        progress = Progress("divergence")
        predictor = Predictor(file, text)
        for i, group in enumerate(groups):
            progress(i, len(groups), group[0].name)
            probe = min(types[group[0].name], key=lambda type: abs(_bits(type) - PROBE))
            loss = predictor.divergence(
                {t.name: quantize_values(t, probe, importance[t.name]) for t in group}
            )
            error = sum(known[t.name]["errors"][probe.name] for t in group)
            for t in group:
                known[t.name]["sensitivity"] = loss / error if error else 0.0
            _write(kept, key, known)
        progress.close()
        predictor.close()
    return {
        t.name: [
            Candidate(
                file_size(type, t.ne),
                find_sensitivity(t, tensors, known) * known[t.name]["errors"][type.name],
                type.name,
            )
            for type in types[t.name]
        ]
        for t in tensors
    }


def find_sensitivity(
    t: TensorInfo, tensors: Sequence[TensorInfo], known: Mapping[str, Losses]
) -> float:
    """Return the sensitivity; for a tensor that predictions do not need, such as of an MTP layer,
    the median of the same tensor in other layers."""
    own = known[t.name]["sensitivity"]
    others = [known[o.name]["sensitivity"] or 0.0 for o in tensors if _kind(o) == _kind(t)]
    return own or float(np.median([x for x in others if x] or [0.0]))


def _kind(t: TensorInfo) -> str:
    return re.sub(r"^blk\.\d+\.", "", t.name)


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


def _write(path: Path | None, key: str, tensors: Mapping[str, Losses]) -> None:
    if path is not None:
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
