"""Sizes: hyperparameters of a model, shapes of its layers, settings of a context."""

from llama_py.hparams.hparams import EPS, L2_EPS, MAX_LAYERS, RMS_EPS, HParams, WindowedHParams

__all__ = ["EPS", "L2_EPS", "MAX_LAYERS", "RMS_EPS", "HParams", "WindowedHParams"]
