"""Serving of parallel requests: continuous batching over the sequences of one context."""

from __future__ import annotations

from llama_py.batch.prompts import TooLong
from llama_py.serving.engine import Engine
from llama_py.serving.job import Handle
from llama_py.serving.metrics import Metrics, Now
from llama_py.serving.models import Models
from llama_py.serving.request import Busy, Closed, Event, Reason, Request, Score, Timings
from llama_py.serving.slots import SlotInfo
from llama_py.serving.source import Lease, ModelInfo, Source, size_of

__all__ = [
    "Busy",
    "Closed",
    "Engine",
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
    "size_of",
]
