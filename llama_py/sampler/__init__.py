"""Sampling of the next token from logits.

    sampler = Sampler(SamplingParams(temp=0.7, seed=1), n_vocab)
    id = sampler.sample(logits)
    sampler.accept(id)

`chain` combines the stages that `stages` creates from the options: functions from `candidates` to
candidates (`penalties`, `dry`, `filters`, `infill`). The last stage draws (`draw`, `mirostat`,
`adaptive`). A `constraint` may refuse the drawn token.
"""

from llama_py.params import SamplingParams
from llama_py.sampler.candidates import Candidates
from llama_py.sampler.chain import Sampler
from llama_py.sampler.constraint import Constraint

__all__ = ["Candidates", "Constraint", "Sampler", "SamplingParams"]
