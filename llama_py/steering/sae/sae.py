"""Sparse autoencoder: converts rows to features and back, and makes changes for `ctx.patch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ggml_py.errors import ModelError
from llama_py.steering.sae import files
from llama_py.steering.sae.activations import ARCHITECTURES, F32, decoder_norm
from llama_py.steering.sae.config import SAEConfig, parse_config

Change = Callable[[npt.NDArray[Any], Any], F32]


class SAE:
    """Features of rows [n, d_in], in NumPy; with SAELens's names and semantics.

    cfg       parameters of the computation
    W_enc     float32 [d_in, d_sae], W_dec [d_sae, d_in], b_dec [d_in] and the architecture's
              other weights (b_enc, threshold, ...) are attributes
    """

    W_enc: F32
    W_dec: F32
    b_dec: F32

    def __init__(self, cfg: SAEConfig, weights: Mapping[str, npt.NDArray[Any]]) -> None:
        """Store the weights; ModelError for missing weights or other sizes."""
        if cfg.architecture not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise ModelError(f"unknown SAE architecture {cfg.architecture!r}; known: {known}")
        self.cfg = cfg
        self._encode, more = ARCHITECTURES[cfg.architecture]
        shapes = {"W_enc": (cfg.d_in, cfg.d_sae), "W_dec": (cfg.d_sae, cfg.d_in),
                  "b_dec": (cfg.d_in,), **dict.fromkeys(more, (cfg.d_sae,))}  # fmt: skip
        self.weights: dict[str, F32] = {}
        for name, shape in shapes.items():
            if name not in weights or weights[name].shape != shape:
                there = weights[name].shape if name in weights else "missing"
                raise ModelError(
                    f"{name} of a {cfg.architecture} SAE must have shape {shape}, got {there}; use "
                    "the files of one SAE"
                )
            self.weights[name] = np.ascontiguousarray(weights[name], np.float32)
        vars(self).update(self.weights)

    @classmethod
    def load(cls, path: str | Path, hook_name: str = "") -> SAE:
        """Load a folder with cfg.json and safetensors weights, or Gemma Scope's params.npz.

        hook_name  source of its rows, if the files do not specify it

        Raises ModelError for an invalid file, or an unsupported kind of SAE.
        """
        found, arrays = files.read(path)
        if "W_enc" not in arrays or "W_dec" not in arrays:
            raise ModelError(f"{path}: W_enc and W_dec are missing; found: {', '.join(arrays)}")
        d_in = arrays["b_dec"].size if "b_dec" in arrays else min(arrays["W_dec"].shape)
        arrays["W_enc"] = _orient(arrays["W_enc"], d_in, 0)
        arrays["W_dec"] = _orient(arrays["W_dec"], d_in, 1)
        if (factor := arrays.pop("scaling_factor", None)) is not None:  # factor of decoded features
            arrays["W_dec"] = arrays["W_dec"] * factor[:, None]
        cfg = parse_config(found, d_in, arrays["W_enc"].shape[1])
        return cls(replace(cfg, hook_name=hook_name or cfg.hook_name), arrays)

    def save(self, folder: str | Path) -> None:
        """Write cfg.json and sae_weights.safetensors, as SAELens does."""
        cfg = asdict(self.cfg)
        where = {"hook_name": cfg.pop("hook_name")}
        files.write(
            folder, {**cfg, "dtype": "float32", "device": "cpu", "metadata": where}, self.weights
        )

    @property
    def hook_name(self) -> str:
        """Name of the rows for `ctx.capture` and `ctx.patch`."""
        if not self.cfg.hook_name:
            raise ModelError(
                "the SAE's files do not specify the hook point of its rows; pass hook_name"
            )
        return self.cfg.hook_name

    def encode(self, x: npt.ArrayLike) -> F32:
        """Encode rows [n, d_in], or [n, n_head, d_head], to features [n, d_sae]."""
        rows, _, _ = self._normalize(self._rows(x))
        if self.cfg.apply_b_dec_to_input:
            rows = rows - self.b_dec
        return self._encode(rows, self.weights, self.cfg)

    def decode(self, features: npt.ArrayLike, like: npt.ArrayLike | None = None) -> F32:
        """Decode features [n, d_sae] to rows [n, d_in].

        like   the rows that were encoded, if the SAE normalizes them: so it is undone
        """
        rows = self._push(np.asarray(features, np.float32)) + self.b_dec
        if self.cfg.normalize_activations == "none":
            return rows
        if like is None:
            raise ModelError("this SAE normalizes rows; use decode(features, like=rows) to undo it")
        _, centre, scale = self._normalize(self._rows(like))
        found: F32 = rows * scale + centre
        return found

    def __call__(self, x: npt.ArrayLike) -> F32:
        """Return the autoencoder's reconstruction of rows, [n, d_in]."""
        return self.decode(self.encode(x), like=x)

    def steer(self, amounts: Mapping[int, float]) -> Change:
        """Return a change for `ctx.patch` that increases these features by the amounts."""
        ids, values = self._features(amounts)

        def change(x: npt.NDArray[Any], at: Any) -> F32:
            return self._move(x, ids, np.broadcast_to(values, (len(x), len(ids))))

        return change

    def clamp(self, values: Mapping[int, float]) -> Change:
        """Return a change for `ctx.patch` that sets these features to the values, and preserves
        the part of a row that the SAE does not reconstruct."""
        ids, wanted = self._features(values)

        def change(x: npt.NDArray[Any], at: Any) -> F32:
            return self._move(x, ids, wanted - self.encode(x)[:, ids])

        return change

    def ablate(self, *ids: int) -> Change:
        """Return a change for `ctx.patch` that removes these features from rows."""
        return self.clamp(dict.fromkeys(ids, 0.0))

    def splice(self) -> Change:
        """Return a change for `ctx.patch` that replaces rows by their reconstruction."""
        return lambda x, at: self(x).reshape(x.shape)

    def top(self, features: npt.ArrayLike, k: int = 10) -> list[tuple[int, float, int]]:
        """Return the features largest anywhere in [n, d_sae]: (feature, value, row)."""
        found = np.asarray(features)
        largest = found.max(axis=0)
        best = np.argsort(-largest, kind="stable")[:k]
        return [(int(i), float(largest[i]), int(found[:, i].argmax())) for i in best]

    def __repr__(self) -> str:
        cfg = self.cfg
        at = f" at {cfg.hook_name}" if cfg.hook_name else ""
        return f"<SAE {cfg.architecture}, {cfg.d_sae} features of {cfg.d_in}{at}>"

    def _rows(self, x: npt.ArrayLike) -> F32:
        rows = np.asarray(x, np.float32)
        if rows.ndim > 1:
            rows = rows.reshape(len(rows), -1)
        if rows.shape[-1] != self.cfg.d_in:
            raise ModelError(
                f"rows must have {self.cfg.d_in} elements like the SAE, got {rows.shape[-1]}"
            )
        return rows

    def _normalize(self, x: F32) -> tuple[F32, Any, Any]:
        """Return normalized rows, and the center and scale that restore them."""
        how = self.cfg.normalize_activations
        if how == "layer_norm":
            centre = x.mean(-1, keepdims=True)
            scale = (x - centre).std(-1, keepdims=True, ddof=1)
            return (x - centre) / (scale + 1e-5), centre, scale
        if how == "constant_norm_rescale":
            scale = np.linalg.norm(x, axis=-1, keepdims=True) / np.sqrt(self.cfg.d_in)
            return x / scale, 0.0, scale
        return x, 0.0, 1.0

    def _push(self, features: F32, ids: Any = slice(None)) -> F32:
        """Return the sum that features add to a row, without the bias."""
        if self.cfg.rescale_acts_by_decoder_norm:
            features = features / decoder_norm(self.weights)[ids]
        found: F32 = features @ self.W_dec[ids]
        return found

    def _move(self, x: npt.NDArray[Any], ids: list[int], by: Any) -> F32:
        rows = self._rows(x)
        _, _, scale = self._normalize(rows)
        moved: F32 = rows + self._push(np.asarray(by, np.float32), ids) * scale
        return moved.reshape(x.shape)

    def _features(self, values: Mapping[int, float]) -> tuple[list[int], F32]:
        for i in values:
            if not 0 <= i < self.cfg.d_sae:
                raise ModelError(f"feature must be from 0 to {self.cfg.d_sae - 1}, got {i}")
        return list(values), np.array([*values.values()], np.float32)


def _orient(matrix: F32, d_in: int, axis: int) -> F32:
    """Return the matrix with d_in as this dimension: some files have it transposed."""
    return matrix if matrix.ndim == 2 and matrix.shape[axis] == d_in else matrix.T
