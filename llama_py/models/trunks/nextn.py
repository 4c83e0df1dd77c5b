"""Drafting with a NextN (multi-token prediction, MTP) layer, from a token and the hidden state
before it (graph_mtp of models/qwen35.cpp, qwen35moe.cpp, qwen3next.cpp, deepseek32.cpp)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ggml_py._moved import Former
from ggml_py.ops import add, concat
from ggml_py.tensor import Tensor
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.tokens import InputEmbdH
from llama_py.graph.linear import Linear, Norm, NormKind
from llama_py.graph.params import GraphType
from llama_py.hparams import HParams
from llama_py.models.trunks.decoder import AnyLayer, Decoder, Layer
from llama_py.weights import Weights

# Names in the trunk with other names in the draft graph; "" keeps a tensor's automatic name.
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


@dataclass(frozen=True, slots=True)
class NextNEnds:
    """Tensors before and after a NextN layer.

    scaled, head_scaled  the matrix that joins token and state may have a scale, and the layer's
                         head as well
    norm       name of the last norm
    norm_kind  type of the last norm, if it differs from the trunk's
    """

    scaled: bool = True
    head_scaled: bool = True
    norm: str = "nextn.shared_head_norm"
    norm_kind: NormKind | None = None


class NextN:
    """A layer after the trunk, fed with a token and the state before it.

    tokens_first  embeddings are normalized before the states
    """

    tokens_first: ClassVar[bool] = False

    def __init__(
        self, w: Weights, hp: HParams, layer: AnyLayer, kind: NormKind, ends: NextNEnds
    ) -> None:
        """Declare the weights; kind: type of the norms, unless `ends` has another."""
        n_embd, n_vocab = hp.n_embd, hp.n_vocab
        self.layer = layer
        self.eh_proj = w.linear("nextn.eh_proj", 2 * n_embd, n_embd, scaled=ends.scaled)
        self.enorm = w.norm("nextn.enorm", n_embd, kind=kind)
        self.hnorm = w.norm("nextn.hnorm", n_embd, kind=kind)
        self.embed_tokens = w.optional_tensor("nextn.embed_tokens.weight", n_embd, n_vocab)
        self.head = w.optional_linear(
            "nextn.shared_head_head", n_embd, n_vocab, scaled=ends.head_scaled
        )
        self.head_norm = w.optional_norm(ends.norm, n_embd, kind=ends.norm_kind or kind)

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        """Return True if outputs are selected right after attention, not before the head."""
        return False

    def build(
        self, g: GraphBuilder, token_embd: Tensor, output_norm: Norm, il: int
    ) -> tuple[Tensor, Linear | None]:
        """Build the head's input [n_embd, n_outputs]; also return the layer's own head, if any."""
        early = self.skips_unused_rows(g)
        inp = g.add_input(InputEmbdH(g.hp.n_embd, g.n_tokens))
        embd = inp.embd
        if g.ubatch.token is not None:
            tokens = token_embd if self.embed_tokens is None else self.embed_tokens
            embd = g.rows(tokens, inp.tokens)
        g.cb(embd, "mtp_tok_embd", il)
        cur = g.cb(self.join(g, embd, inp.h, il), "mtp_concat", il)
        cur = g.cb(self.eh_proj(g, cur), "mtp_eh_proj", il)
        layer = self._serial if isinstance(self.layer, Layer) else self.layer
        cur = g.cb(layer(g, cur, il, early), "mtp_post_ffn", il)
        return self.end(g, self.head_norm or output_norm, cur, early), self.head

    def join(self, g: GraphBuilder, embd: Tensor, h: Tensor, il: int) -> Tensor:
        """Normalize and join embeddings and states [n_embd, n_tokens] -> [2 * n_embd, n_tokens]."""
        if self.tokens_first:
            embd = self.enorm(g, embd, "mtp_enorm", il)
            return concat(embd, self.hnorm(g, h, "mtp_hnorm", il), 0)
        h = self.hnorm(g, h, "mtp_hnorm", il)
        return concat(self.enorm(g, embd, "mtp_enorm", il), h, 0)

    def end(self, g: GraphBuilder, norm: Norm, cur: Tensor, early: bool) -> Tensor:
        """Normalize the layer's result for the head; `early`: it has only output rows."""
        cur = apply_last_norm(g, norm, cur)
        if not early:
            cur = g.cb(g.outputs(cur)[0], "mtp_shared_head_norm")
        return cur

    def _serial(self, g: GraphBuilder, residual: Tensor, il: int, early: bool) -> Tensor:
        layer = self.layer
        assert isinstance(layer, Layer)
        assert layer.attn_norm and layer.attention and layer.ffn_norm and layer.feed_forward
        cur = layer.attention(g, layer.attn_norm(g, residual, "attn_norm", il), il)
        residual = self.add_residual(g, cur, residual, il, early)
        cur = layer.ffn_norm(g, residual, "mtp_attn_post_norm", il)
        cur = layer.feed_forward(g, cur, il)
        return add(cur, residual)

    def add_residual(
        self, g: GraphBuilder, cur: Tensor, residual: Tensor, il: int, early: bool
    ) -> Tensor:
        """Add attention's result and the layer's input [n_embd, n_tokens]."""
        if early:
            cur, residual = g.outputs(cur, residual)
        return g.cb(add(cur, residual), "mtp_attn_residual", il)

    summed = Former("add_residual")


class EarlyNextN(NextN):
    """Outputs are selected right after attention, unless all rows are needed."""

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return g.cparams.embeddings_nextn_masked or not g.cparams.embeddings_nextn


class UnnormedNextN(NextN):
    """NextN layer with the input of the last norm, not its result, as the next draft's input."""

    def end(self, g: GraphBuilder, norm: Norm, cur: Tensor, early: bool) -> Tensor:
        every, cur = cur, g.cb(cur if early else g.outputs(cur)[0], "h_nextn")
        of_all = g.cparams.embeddings_nextn and not g.cparams.embeddings_nextn_masked
        g.res.t_h_nextn = every if of_all else cur
        return norm(g, cur, "mtp_shared_head_norm")


def apply_last_norm(g: GraphBuilder, norm: Norm, cur: Tensor) -> Tensor:
    """Apply the last norm; its result, or its input, seeds a NextN layer."""
    before, cur = cur, norm(g, cur, "h_nextn")
    g.res.t_h_nextn = before if g.cparams.nextn_pre_norm else cur
    return cur


class SeedingDecoder(Decoder):
    """Decoder with a normed hidden state for the head and the draft layers."""

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return g.cparams.embeddings_nextn_masked

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        cur = apply_last_norm(g, self.output_norm, cur)
        if not selected:
            cur = g.outputs(cur)[0]
        g.res.t_embd = g.cb(cur, "result_norm")
        self.head(g, cur)


class DraftingDecoder(SeedingDecoder):
    """Decoder with NextN layers that draft, of the same type as the trunk's layers.

    A file may have the trunk, the NextN layers, or both.

    nextn       the class of the NextN layers
    nextn_ends  tensors before and after the layers
    trunk_tensor  tensor of the first layer, if the file has the trunk
    """

    gtypes: ClassVar[tuple[GraphType, ...]] = ("decoder", "decoder_mtp")
    nextn: ClassVar[type[NextN]] = NextN
    nextn_ends: ClassVar[NextNEnds] = NextNEnds()
    trunk_tensor: ClassVar[str] = "attn_norm.weight"

    def nextn_layer(self, w: Weights, il: int) -> AnyLayer:
        """Declare layer il after the trunk; by default like a layer of the trunk."""
        return self.layer(w, il)

    def declare_trunk(self, w: Weights) -> None:
        self.has_trunk = self.finds_trunk(w)
        if self.has_trunk:
            super().declare_trunk(w)
        else:
            self.layers = []

    def finds_trunk(self, w: Weights) -> bool:
        """Return True unless the file has NextN layers only."""
        nextn = range(self.hp.n_layer, self.hp.n_layer_all)
        heads = any(w.layer(il).has("nextn.eh_proj.weight") for il in nextn)
        return not heads or w.layer(0).has(self.trunk_tensor)

    def nextn_layers(self, w: Weights) -> range:
        """Return the layers after the trunk to declare; skip them if they are not loaded."""
        nextn = range(self.hp.n_layer, self.hp.n_layer_all)
        if self.load_mtp:
            return nextn
        w.skip_nextn(nextn)
        return range(0)

    def declare_nextn(self, w: Weights) -> None:
        made = ((w.layer(il), self.nextn_layer(w.layer(il), il)) for il in self.nextn_layers(w))
        kind = self.output_norm.kind
        self.drafts = [
            self.nextn(own, self.hp, layer, kind, self.nextn_ends) for own, layer in made
        ]

    def lm_head(self, nextn: int | None = None) -> Linear | None:
        return (self.drafts[nextn].head if nextn is not None else None) or self.output

    def build_draft(self, g: GraphBuilder) -> None:
        number = g.cparams.nextn_layer
        il = self.hp.n_layer + number
        self.head(g, *self.drafts[number].build(g, self.token_embd, self.output_norm, il))


class EarlyDrafter(DraftingDecoder):
    """Drafting decoder that passes only outputs through the trunk's end, unless all rows seed draft
    layers."""

    def skips_unused_rows(self, g: GraphBuilder) -> bool:
        return not g.cparams.embeddings_nextn or g.cparams.embeddings_nextn_masked


class UnnormedDrafter(DraftingDecoder):
    """Drafting decoder that seeds draft layers by the last norm's input, not its result."""

    nextn = UnnormedNextN

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        g.res.t_h_nextn = g.cb(cur, "h_nextn")
        Decoder.finish(self, g, cur, selected)
