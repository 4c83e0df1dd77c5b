"""Sampling of the next token from logits."""

from llama_py.params import SamplingParams
from llama_py.sampler.candidates import Candidates
from llama_py.sampler.chain import Sampler
from llama_py.sampler.constraint import Constraint

__all__ = ["Candidates", "Constraint", "Sampler", "SamplingParams"]
