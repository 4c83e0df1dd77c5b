"""From logits to the next token.

    sampler = Sampler(SamplingParams(temp=0.7, seed=1), n_vocab)
    id = sampler.sample(logits)
    sampler.accept(id)

What a chain is made of: `filters`, `penalties`.
"""

from llama_py.params import SamplingParams
from llama_py.sampler.chain import Sampler
from llama_py.sampler.filters import Candidates

__all__ = ["Candidates", "Sampler", "SamplingParams"]
