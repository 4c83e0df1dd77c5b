"""EAGLE-3: one layer that drafts for another model, from a token and the previous token's hidden
states of three layers, joined by a matrix (models/eagle3.cpp).

If only some tokens of a batch are outputs, their logits are returned; llama.cpp returns the logits
of its first tokens. An unknown token in `d2t` is an error here, and so is `d2t` without a head:
llama.cpp ends the process.
"""

from __future__ import annotations

from dataclasses import replace

from ggml_py.errors import WeightsError
from ggml_py.ops import add, concat
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Attention, RowProjections
from llama_py.blocks.feed_forward import FeedForward
from llama_py.blocks.rope import RopeFactors
from llama_py.gguf.keys import Keys, flag, number, uint
from llama_py.graph.borrowed import TargetTensors
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.tokens import InputEmbd
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.cparams import CParams
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.models.trunks.architecture import Architecture
from llama_py.models.trunks.draft import Ends, target_layers
from llama_py.models.trunks.rules import DraftRules
from llama_py.weights import Weights

N_TARGETS = 3


class Eagle3HParams(HParams):
    """n_embd_target  n_embd of the target model"""

    mixes_embd = False
    rope_type = ROPE_NORMAL
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_embd_target: int = uint("target_hidden_size", least=1)
    norm_before_residual: bool = flag("norm_before_residual", False)
    norm_before_fc: bool = flag("norm_before_fc", False)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.target_layers = target_layers(keys, f"{N_TARGETS} layers", N_TARGETS)
        if self.n_layer_all != 1:
            raise keys.error("block_count", "must be 1")
        if self.n_layer_nextn:
            raise keys.error("nextn_predict_layers", "must be 0")

    @property
    def n_embd_inp_enc(self) -> int:
        return N_TARGETS * self.n_embd_target


class Eagle3(Architecture):
    arch = "eagle3"
    HParams = Eagle3HParams
    hp: Eagle3HParams
    gtypes = ("decoder", "encoder")
    draft_rules = DraftRules("draft-eagle3", continues_states=True)
    names = {"ffn_norm": "post_attn_norm"}

    def declare(self, w: Weights) -> None:
        hp, n_embd, first = self.hp, self.hp.n_embd, w.layer(0)
        self.draft_rules = replace(self.draft_rules, target_layers=hp.target_layers)
        self.ends = Ends(w, hp)
        self.fc = w.linear("fc", hp.n_embd_inp_enc, n_embd, scaled=False)
        self.fc_norm = w.norm("enc.output_norm", hp.n_embd_inp_enc) if hp.norm_before_fc else None
        self.output_norm = w.norm("output_norm", n_embd)
        self.ends.output = w.optional_linear("output", n_embd, self.ends.n_tokens, scaled=False)
        if self.ends.some is not None and self.ends.output is None:
            raise WeightsError(
                f"{w.source}: tensor 'd2t' needs an LM head, which the file does not have; "
                "convert the model again"
            )
        if (info := w.info("token_embd.weight")) is not None:
            n_rows = max(hp.n_vocab, info.ne[1])
            self.ends.token_embd = w.tensor("token_embd.weight", n_embd, n_rows)
        self.token_norm = first.norm("attn_norm", n_embd)
        self.state_norm = first.norm("attn_norm_2", n_embd)
        self.factors = RopeFactors(w, hp)
        self.attention = Attention(
            first,
            hp,
            qkv=RowProjections(first, 2 * n_embd, hp.layers[0], bias=False, scaled=False),
            turned=("Qcur_rope", "Kcur_rope"),
            factors=self.factors,
        )
        self.ffn_norm = first.norm("ffn_norm", n_embd)
        self.feed_forward = FeedForward(first, n_embd, hp.layers[0].n_ff, scaled=False)

    def rope_factors(self, cparams: CParams, il: int) -> Tensor | None:
        return self.factors(cparams)

    def placeholder_tensors(self) -> TargetTensors:
        return self.ends.placeholder_tensors()

    def build_encoder(self, g: GraphBuilder) -> None:
        """Build the graph that encodes three layers' hidden states into states for drafting."""
        n_inp = self.hp.n_embd_inp_enc
        cur = g.add_input(InputEmbd(n_inp, g.n_tokens, ("", "inp_embd"))).embd
        if self.fc_norm is not None:
            cur = self.fc_norm(g, cur, "enc_input_norm")
        g.res.t_embd = g.res.t_h_nextn = g.expand(g.cb(self.fc(g, cur), "fc_out"))

    def build(self, g: GraphBuilder) -> None:
        inp = g.add_input(InputEmbd(self.hp.n_embd, g.n_tokens, ("", "inp_g_embeddings")))
        tokens, states = g.cb(self.ends.rows(g, inp.tokens), "inp_embd"), inp.embd
        tokens = self.token_norm(g, tokens, il=0)
        normed = self.state_norm(g, states)
        residual = normed if self.hp.norm_before_residual else states
        both = concat(g.cb(tokens, "embd_norm", 0), g.cb(normed, "g_norm", 0), 0)
        cur = self.attention(g, g.cb(both, "concat_embd", 0), 0)
        ffn_inp = g.cb(add(cur, residual), "ffn_inp", 0)
        cur = self.feed_forward(g, self.ffn_norm(g, ffn_inp, "ffn_norm", 0), 0)
        cur = g.cb(add(cur, ffn_inp), "eagle3_prenorm", 0)
        g.res.t_h_nextn = cur
        cur = self.ends.logits(g, self.output_norm(g, cur, "result_norm"))
        if self.ends.some is not None:
            cur = self.ends.some(g, cur)
        g.res.t_logits = g.expand(g.cb(cur, "result_output"))
