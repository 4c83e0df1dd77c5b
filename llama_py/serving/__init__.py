"""Serving of parallel requests: continuous batching over the sequences of one context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from llama_py.batch.prompts import TooLong
from llama_py.decoding.scores import Score
from llama_py.serving.engine import Engine
from llama_py.serving.job import Handle
from llama_py.serving.metrics import Metrics, Now
from llama_py.serving.models import Models
from llama_py.serving.request import Busy, EngineClosed, Event, Reason, Request, Timings
from llama_py.serving.slots import SlotInfo
from llama_py.serving.source import Lease, ModelInfo, Source, model_size

__all__ = [
    "Busy",
    "Engine",
    "EngineClosed",
    "Event",
    "Handle",
    "Lease",
    "Metrics",
    "ModelInfo",
    "Models",
    "Now",
    "Reason",
    "Request",
    "Score",
    "SlotInfo",
    "Source",
    "Timings",
    "TooLong",
    "model_size",
]


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, size_of="model_size", Closed="EngineClosed")
