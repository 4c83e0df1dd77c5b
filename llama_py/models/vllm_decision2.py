"""Decision models of vLLM: Qwen 3's layers, and a head that scores options by a question."""

from __future__ import annotations

from ggml_py.ops import add, gelu_erf, get_rows, mul, scale, sum_rows
from ggml_py.tensor import Tensor
from llama_py.blocks.functions import inv_sqrt
from llama_py.gguf.keys import number
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.marks import InputMarkedRows
from llama_py.hparams import EPS
from llama_py.models.qwen3 import Qwen3, Qwen3HParams
from llama_py.models.trunks.decision import DecisionDecoder
from llama_py.models.trunks.rules import QuantizeRules
from llama_py.weights import Weights


class VllmDecision2HParams(Qwen3HParams):
    decides = True
    f_norm_eps: float = number(EPS, least=0)


class OptionHead:
    """Score of an option's row o and the question's row u, both normed:
    key(o) * query(u) / sqrt(n) + scorer_out(gelu(option_mlp(o) + query_mlp(u)))."""

    def __init__(self, w: Weights, n_embd: int) -> None:
        self.n = n = w.n_rows("key.weight", n_embd)
        norms = ("option_norm", "query_norm")
        self.norms = [w.norm(stem, n_embd, kind="layer", bias="needed") for stem in norms]
        self.key = w.linear("key", n_embd, n, scaled=False)
        self.query = w.linear("query", n_embd, n, scaled=False)
        self.option_mlp = w.linear("option_mlp", n_embd, n, bias="needed", scaled=False)
        self.query_mlp = w.linear("query_mlp", n_embd, n, scaled=False)
        self.out = w.linear("scorer_out", n, 1, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, inp: InputMarkedRows) -> Tensor:
        """Score rows of cur [n_embd, n_tokens]. -> [1, n_options]"""
        rows = (inp.options, inp.question)
        o, u = (norm(g, get_rows(cur, ids)) for norm, ids in zip(self.norms, rows, strict=True))
        product = scale(sum_rows(mul(self.key(g, o), self.query(g, u))), inv_sqrt(self.n))
        hidden = gelu_erf(add(self.option_mlp(g, o), self.query_mlp(g, u)))
        return g.cb(add(product, self.out(g, hidden)), "decision_scores")


class VllmDecision2(DecisionDecoder, Qwen3):
    arch = "vllm-decision2"
    HParams = VllmDecision2HParams
    sizes = {}
    reranks = False
    quantize_rules = QuantizeRules(never=("decision.",))

    def declare_ends(self, w: Weights) -> None:
        self.output_norm = w.norm("output_norm", self.hp.n_embd)
        w.skip("output.weight", "cls.output.weight", "cls.output.bias", "dense_2.weight")
        self.head_of_options = OptionHead(w.scope("decision."), self.hp.n_embd)

    def decide(self, g: GraphBuilder, cur: Tensor) -> tuple[Tensor, Tensor]:
        inp = g.add_input(InputMarkedRows(g.params))
        return self.head_of_options(g, cur, inp), inp.valid
