"""Drafting with a NextN (MTP) layer: the next token from a token and the hidden state before it
(graph_mtp of models/qwen35.cpp, qwen35moe.cpp, qwen3next.cpp, deepseek32.cpp)."""

from __future__ import annotations

from typing import ClassVar

from ggml_py.ops import add, concat
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.tokens import InputEmbdH
from llama_py.graph.linear import Linear, Norm, NormKind
from llama_py.graph.params import GraphType
from llama_py.hparams import HParams
from llama_py.models.trunks.decoder import AnyLayer, Decoder, Layer
from llama_py.weights import Weights

# Trunk names of what the draft graph calls otherwise; "" leaves a tensor to its automatic name.
DRAFT_NAMES = {
    "attn_norm": "mtp_attn_norm",
    "Qcur_full": "mtp_Qcur_full",
    "Kcur_full": "",
    "Vcur_full": "",
    "Qcur_reshaped": "",
    "Qcur_normed": "mtp_Qcur_normed",
    "Qcur": "",
    "Kcur": "",
    "Kcur_normed": "mtp_Kcur_normed",
    "Vcur": "mtp_Vcur",
    "gate_view": "",
    "gate_reshaped": "mtp_gate",
    "attn_pregate": "mtp_attn_pregate",
    "gate_sigmoid": "",
    "attn_gated": "",
    "attn_output": "mtp_attn_out",
    "ffn_out": "mtp_ffn_out",
    "ffn_moe_out": "mtp_ffn_moe_out",
    "ffn_shexp": "mtp_ffn_shexp",
    "shared_expert_gate": "",
    "shared_expert_gate_sigmoid": "mtp_shared_expert_gate_sigmoid",
    "ffn_shexp_gated": "mtp_ffn_shexp_gated",
}


class NextN:
    """A layer after the trunk, fed with a token and the state before it.

    head_norm_stem  of the name of the last norm
    """

    head_norm_stem: ClassVar[str] = "nextn.shared_head_norm"

    def __init__(
        self,
        w: Weights,
        hp: HParams,
        layer: AnyLayer,
        *,
        scaled: bool = True,
        head_scaled: bool = True,
        kind: NormKind = "rms",
        head_kind: NormKind | None = None,
        selects_sums: bool = False,
    ) -> None:
        """scaled, head_scaled  whether the matrix that joins both may have a scale, and the head
        kind, head_kind  of the norms, and of the last if it is of another
        selects_sums  outputs are selected of the sum after attention, not of what is added
        """
        n_embd, n_vocab = hp.n_embd, hp.n_vocab
        self.layer, self.selects_sums = layer, selects_sums
        self.eh_proj = w.linear("nextn.eh_proj", 2 * n_embd, n_embd, scaled=scaled)
        self.enorm = w.norm("nextn.enorm", n_embd, kind=kind)
        self.hnorm = w.norm("nextn.hnorm", n_embd, kind=kind)
        self.embed_tokens = w.optional_tensor("nextn.embed_tokens.weight", n_embd, n_vocab)
        self.head = w.optional_linear("nextn.shared_head_head", n_embd, n_vocab, scaled=head_scaled)
        self.head_norm = w.optional_norm(self.head_norm_stem, n_embd, kind=head_kind or kind)

    def build(
        self, g: GraphBuilder, token_embd: Tensor, output_norm: Norm, il: int, early: bool
    ) -> tuple[Tensor, Linear | None]:
        """What the head gets [n_embd, n_outputs], and the layer's own head if it has one.

        early  outputs are selected right after attention, not before the head
        """
        inp = g.add_input(InputEmbdH(g.hp.n_embd, g.n_tokens))
        embd = inp.embd
        if g.ubatch.token is not None:
            tokens = token_embd if self.embed_tokens is None else self.embed_tokens
            embd = g.rows(tokens, inp.tokens)
        g.cb(embd, "mtp_tok_embd", il)
        h_norm = self.hnorm(g, inp.h, "mtp_hnorm", il)
        e_norm = self.enorm(g, embd, "mtp_enorm", il)
        cur = g.cb(concat(e_norm, h_norm, 0), "mtp_concat", il)  # [2 * n_embd, n_tokens]
        cur = g.cb(self.eh_proj(g, cur), "mtp_eh_proj", il)
        layer = self._serial if isinstance(self.layer, Layer) else self.layer
        cur = g.cb(layer(g, cur, il, early), "mtp_post_ffn", il)
        return self.end(g, self.head_norm or output_norm, cur, early), self.head

    def end(self, g: GraphBuilder, norm: Norm, cur: Tensor, early: bool) -> Tensor:
        """What the head gets, of the layer's result, whose rows are those of outputs if `early`."""
        cur = normed(g, norm, cur)
        if not early:
            cur = g.cb(g.outputs(cur)[0], "mtp_shared_head_norm")
        return cur

    def _serial(self, g: GraphBuilder, residual: Tensor, il: int, early: bool) -> Tensor:
        layer = self.layer
        assert isinstance(layer, Layer)
        assert layer.attn_norm and layer.attention and layer.ffn_norm and layer.feed_forward
        cur = layer.attention(g, layer.attn_norm(g, residual, "attn_norm", il), il)
        if early and not self.selects_sums:
            cur, residual = g.outputs(cur, residual)
        residual = g.cb(add(cur, residual), "mtp_attn_residual", il)
        if early and self.selects_sums:
            residual = g.outputs(residual)[0]
        cur = layer.ffn_norm(g, residual, "mtp_attn_post_norm", il)
        cur = layer.feed_forward(g, cur, il)
        return add(cur, residual)


class UnnormedNextN(NextN):
    """What seeds the next one is what the last norm gets."""

    def end(self, g: GraphBuilder, norm: Norm, cur: Tensor, early: bool) -> Tensor:
        every, cur = cur, g.cb(cur if early else g.outputs(cur)[0], "h_nextn")
        of_all = g.cparams.embeddings_nextn and not g.cparams.embeddings_nextn_masked
        g.res.t_h_nextn = every if of_all else cur
        return norm(g, cur, "mtp_shared_head_norm")


def normed(g: GraphBuilder, norm: Norm, cur: Tensor) -> Tensor:
    """The last norm; what seeds a NextN layer is its result, or what it gets."""
    before, cur = cur, norm(g, cur, "h_nextn")
    g.res.t_h_nextn = before if g.cparams.nextn_pre_norm else cur
    return cur


class DraftingDecoder(Decoder):
    """With NextN layers that draft, of the same kind as those of the trunk.

    A file may have the trunk, the NextN layers, or both.

    nextn         the class of these layers
    drafts_early  outputs are selected right after its attention, unless all rows are wanted
    scaled, head_scaled, selects_sums   as of `NextN`
    head_norm  the kind of its last norm, if it is another than the trunk's
    """

    gtypes: ClassVar[tuple[GraphType, ...]] = ("decoder", "decoder_mtp")
    nextn: ClassVar[type[NextN]] = NextN
    drafts_early: ClassVar[bool] = False
    scaled: ClassVar[bool] = True
    head_scaled: ClassVar[bool] = True
    head_norm: ClassVar[NormKind | None] = None
    selects_sums: ClassVar[bool] = False

    def nextn_layer(self, w: Weights, il: int) -> AnyLayer:
        """Make layer il, one of those after the trunk; here it is as those of the trunk."""
        return self.layer(w, il)

    def declare_trunk(self, w: Weights) -> None:
        nextn = range(self.hp.n_layer, self.hp.n_layer_all)
        heads = any(w.layer(il).has("nextn.eh_proj.weight") for il in nextn)
        self.has_trunk = not heads or w.layer(0).has("attn_norm.weight")
        if self.has_trunk:
            super().declare_trunk(w)
        else:
            self.layers = []

    def declare_nextn(self, w: Weights) -> None:
        nextn = range(self.hp.n_layer, self.hp.n_layer_all)
        if not self.load_mtp:
            w.skip_nextn(nextn)
            return
        made = ((w.layer(il), self.nextn_layer(w.layer(il), il)) for il in nextn)
        self.drafts = [
            self.nextn(
                own,
                self.hp,
                layer,
                scaled=self.scaled,
                head_scaled=self.head_scaled,
                kind=self.output_norm.kind,
                head_kind=self.head_norm,
                selects_sums=self.selects_sums,
            )
            for own, layer in made
        ]

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        # The normed state feeds the head, and the NextN layer of a draft context.
        cur = normed(g, self.output_norm, cur)
        if not selected:
            cur = g.outputs(cur)[0]
        g.res.t_embd = g.cb(cur, "result_norm")
        self.head(g, cur)

    def head_of(self, nextn: int | None = None) -> Linear | None:
        return (self.drafts[nextn].head if nextn is not None else None) or self.output

    def build_draft(self, g: GraphBuilder) -> None:
        cp = g.cparams
        early = self.drafts_early and (cp.embeddings_nextn_masked or not cp.embeddings_nextn)
        il = self.hp.n_layer + cp.nextn_layer
        layer = self.drafts[cp.nextn_layer]
        self.head(g, *layer.build(g, self.token_embd, self.output_norm, il, early))


class UnnormedDrafter(DraftingDecoder):
    """What seeds the layers that draft is what the last norm gets, and not its result."""

    nextn = UnnormedNextN

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        g.res.t_h_nextn = g.cb(cur, "h_nextn")
        Decoder.finish(self, g, cur, selected)
