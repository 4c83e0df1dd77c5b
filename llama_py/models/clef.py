"""Clef: Qwen 3.5's layers over one text, and a head that scores options of several questions."""

from __future__ import annotations

from ggml_py.errors import HParamsError
from ggml_py.ops import (
    abs,
    add,
    concat,
    cont,
    get_rows,
    l2_norm,
    mul,
    mul_mat,
    scale,
    soft_max,
    sub,
    sum_rows,
    transpose,
    view,
)
from ggml_py.ops import gelu_erf as gelu
from ggml_py.tensor import Tensor
from llama_py.blocks.decision import JointBlock, RoutingBlock
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.functions import inv_sqrt
from llama_py.blocks.gated_attention import GatedAttention
from llama_py.blocks.linear_attention import StatelessLinearAttention
from llama_py.gguf.keys import Keys, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.marks import InputFields
from llama_py.graph.inputs.tokens import InputEmbd
from llama_py.graph.linear import Linear, Norm
from llama_py.hparams import EPS, MAX_LAYERS
from llama_py.memory.specs import MemorySpecs
from llama_py.models.qwen35 import Qwen35HParams
from llama_py.models.trunks.decision import DecisionDecoder
from llama_py.models.trunks.decoder import Layer
from llama_py.weights import Weights

COSINE_EPS = 1e-12
UNNAMED = (
    *("linear_attn_qkv_mixed", "z", "beta", "beta_sigmoid", "alpha", "a_softplus", "gate"),
    *("state_predelta", "conv_output_raw", "q_conv", "k_conv", "v_conv", "q_conv_predelta"),
    *("k_conv_predelta", "v_conv_predelta", "final_output", "Qcur_full", "Kcur_full", "Vcur_full"),
    *("Qcur_reshaped", "gate_view", "gate_reshaped", "Qcur", "Kcur", "Vcur", "gate_sigmoid"),
    "attn_gated",
)


class ClefHParams(Qwen35HParams):
    """n_routing, n_joint  blocks of the head;  n_head_decision  heads of each"""

    decides = True
    cached = False
    within_step = 256
    f_norm_eps: float = number(EPS, least=0)
    n_routing: int = uint("decision.routing_block_count", most=MAX_LAYERS)
    n_joint: int = uint("decision.block_count", most=MAX_LAYERS)
    n_head_decision: int = uint("decision.head_count", least=1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if not self.n_routing + self.n_joint:
            raise keys.error("decision.block_count", "must be at least 1 without routing blocks")


class ClefHead:
    """Scores of options: the cosine of their tokens' embeddings and the question, and a comparison
    of the option with the question's field, after blocks that let both read the text."""

    def __init__(self, w: Weights, hp: ClefHParams) -> None:
        at = w.scope("decision.")
        n = self.n = at.n_rows("proj_memory.weight", hp.n_embd)
        n_ff = w.n_rows("dec.blk.0.ffn_up.weight", n)
        if n % hp.n_head_decision:
            raise HParamsError(
                f"{hp.arch}.decision.head_count must divide {n}, the rows of "
                f"decision.proj_memory.weight, got {hp.n_head_decision}; convert the model again"
            )

        def norm(stem: str, size: int = n) -> Norm:
            return at.norm(f"{stem}_norm", size, kind="layer", bias="needed")

        def project(name: str) -> Linear:
            return at.linear(f"proj_{name}", hp.n_embd, n, scaled=False)

        self.hidden_norm, self.summary_norm = norm("hidden", hp.n_embd), norm("option_summary")
        self.field_norm, self.option_norm = norm("field"), norm("option")
        self.memory, self.question = project("memory"), project("question")
        self.option_question, self.last = project("option_question"), project("global")
        self.context, self.lexical = project("option_context"), project("option_lexical")
        self.scales = at.tensor("scales", 3)
        self.types = w.tensor("token_types.weight", n, 3)
        self.scorer = at.linear("scorer", 4 * n, n, bias="needed", scaled=False)
        self.scorer_out = at.linear("scorer_out", n, 1, bias="needed", scaled=False)
        count = hp.n_routing + hp.n_joint
        blocks = [w.scope(f"dec.blk.{i}.") for i in range(count)]
        kinds = [RoutingBlock] * hp.n_routing + [JointBlock] * hp.n_joint
        made = [
            kind(part, n, n_ff, hp.n_head_decision)
            for kind, part in zip(kinds, blocks, strict=True)
        ]
        self.routing, self.joint = made[: hp.n_routing], made[hp.n_routing :]

    def __call__(self, g: GraphBuilder, hidden: Tensor, rows: Tensor, inp: InputFields) -> Tensor:
        """Score options by hidden [n_embd, n_tokens] and the tokens' output embeddings `rows`, like
        hidden. -> [1, n_options]"""
        lexical = mul_mat(cont(transpose(rows)), inp.option_means)
        words = g.expand(l2_norm(lexical, COSINE_EPS))
        hidden = self.hidden_norm(g, hidden)
        columns = cont(transpose(hidden))
        questions = mul_mat(columns, inp.question_means)
        last = view(hidden, hidden.ne[:1], offset=(hidden.ne[1] - 1) * hidden.ne[0])
        asked = get_rows(l2_norm(add(questions, last), COSINE_EPS), inp.owners)
        score = self._scale(sum_rows(mul(words, asked)), 0)
        options = add(self.context(g, mul_mat(columns, inp.option_means)), self.lexical(g, lexical))
        options = add(options, get_rows(self.option_question(g, questions), inp.owners))
        memory = self.memory(g, hidden)
        for block in self.routing:
            options = block(g, options, memory)
        g.cb(options, "decision_options")
        fields = self._fields(g, self.question(g, questions), options, self.last(g, last), inp)
        for block in self.joint:
            fields = block(g, fields, memory)
        fields = g.cb(self.field_norm(g, fields), "decision_fields")
        return add(score, self._scale(self._compare(g, fields, options, inp), 2))

    def _fields(
        self, g: GraphBuilder, questions: Tensor, options: Tensor, last: Tensor, inp: InputFields
    ) -> Tensor:
        """Add to each question [n, n_questions] a summary of its options, the text's last token
        [n], and its type."""
        columns = cont(transpose(options))
        products = scale(mul_mat(options, questions), inv_sqrt(self.n))
        summary = mul_mat(columns, soft_max(add(products, inp.others)))
        fields = add(add(questions, self.summary_norm(g, summary)), last)
        return add(fields, get_rows(self.types, inp.kinds))

    def _compare(
        self, g: GraphBuilder, fields: Tensor, options: Tensor, inp: InputFields
    ) -> Tensor:
        """Compare each option with its question's field. -> [1, n_options]"""
        field = get_rows(fields, inp.owners)
        unit = l2_norm(field, COSINE_EPS)
        option = self.option_norm(g, options)
        cosine = self._scale(sum_rows(mul(unit, l2_norm(option, COSINE_EPS))), 1)
        both = concat(concat(field, option, 0), mul(field, option), 0)
        both = concat(both, abs(sub(field, option)), 0)
        return add(cosine, self.scorer_out(g, gelu(self.scorer(g, both))))

    def _scale(self, x: Tensor, i: int) -> Tensor:
        return mul(x, view(self.scales, (1,), offset=i))


class Clef(DecisionDecoder):
    arch = "clef"
    HParams = ClefHParams
    hp: ClefHParams
    names = {"ffn_inp": "attn_residual", "ffn_norm": "attn_post_norm", **dict.fromkeys(UNNAMED, "")}

    def declare_ends(self, w: Weights) -> None:
        n_embd, n_vocab = self.hp.n_embd, self.hp.n_vocab
        self.output_norm = w.norm("output_norm", n_embd)
        output = w.optional_tensor("output.weight", n_embd, n_vocab)
        self.words = self.token_embd if output is None else output
        w.skip("cls.output.weight", "cls.output.bias")
        self.options = ClefHead(w, self.hp)

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        recurrent = hp.layers[il].recurrent
        return Layer(
            w.norm("attn_norm", n_embd),
            StatelessLinearAttention(w, hp) if recurrent else GatedAttention(w, hp),
            w.norm("post_attention_norm", n_embd),
            FeedForward(w, n_embd, hp.layers[il].n_ff),
        )

    def memory_spec(self, il: int) -> MemorySpecs:
        return ()

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return False

    def decide(self, g: GraphBuilder, cur: Tensor) -> tuple[Tensor, Tensor]:
        inp = g.add_input(InputFields(g.params))
        ids = g.add_input(InputEmbd(g.hp.n_embd_inp, g.n_tokens, ("", "")))
        return self.options(g, cur, g.rows(self.words, ids.tokens), inp), inp.valid
