"""Qwen4, experimental: delta nets, every fourth layer attention to chosen blocks of tokens; several
residual streams, with n-gram embeddings added in one layer; experts with a shared expert; a NextN
layer that drafts (models/qwen4exp.cpp).

The graph is llama.cpp b11739's: attention to whole blocks, and a NextN layer that reads and writes
the streams. If that build refuses a file's blocks (of one cell, or of several sizes), the graph is
llama.cpp 0.5.0's: the last chosen block may be incomplete, and of cells with equal scores the first
are chosen (llama.cpp chooses any).

Biases of queries, keys and values apply if a file has them; llama.cpp ignores them. A sequence that
shares a part of a block with another still has the block; in llama.cpp all tokens then see its
cells. A control vector applies to every stream; llama.cpp ignores it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ggml_py.ops import concat, mul, repeat_4d, reshape, sigmoid
from ggml_py.tensor import Tensor
from llama_py.blocks.experts import Experts, ExpertSet, SharedExperts, Weighing
from llama_py.blocks.gated_attention import GatedAttention
from llama_py.blocks.gated_streams import GatedStreams, grouped_norm
from llama_py.blocks.indexer import mask_unchosen
from llama_py.blocks.linear_attention import LinearAttention
from llama_py.blocks.mean_pool_indexer import MeanPoolIndexer
from llama_py.blocks.ngrams import NGrams, NGramSizes, load_conv_state, ngram_rows
from llama_py.blocks.pooled_indexer import PooledIndexer
from llama_py.gguf.keys import Keys, as_int, number, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.ngrams import Hashes
from llama_py.graph.inputs.tokens import InputEmbdH
from llama_py.graph.linear import Linear, Norm
from llama_py.hparams.layer_shape import ROPE_IMROPE
from llama_py.memory.specs import Index, MemorySpecs, StateSpec, Tokens
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.hybrid import NAMES, HybridMoeHParams
from llama_py.models.trunks.nextn import EarlyDrafter
from llama_py.weights import Weights

MAX_NGRAM, MAX_HEADS = 8, 64  # llama-hparams.h
MAX_BLOCK = 1024  # positions: each is a node of the graph
END_OF_ROWS = 2**31 - 1


class Qwen4ExpHParams(HybridMoeHParams):
    """n_stream, hc_rank   residual streams, and the rank of the gates for reading
    compress_ratios   by layer, tokens of a block that attention chooses; 0: full attention
    whole_blocks   attention chooses whole blocks, not cells
    ngram_layer   layer that adds embeddings of n-grams, or -1
    """

    rope_type = ROPE_IMROPE
    rope_sections: tuple[int, ...] = uints("rope.dimension_sections", count=lambda _: 4)
    expert_weights_scale: float = number("expert_weights_scale", 0.0)
    n_stream: int = uint("hyper_connection.count", least=2)
    hc_rank: int = uint("hyper_connection.low_rank", least=1)
    indexer_n_head: int = uint("attention.indexer.head_count", least=1)
    indexer_head_size: int = uint("attention.indexer.key_length", least=1)
    indexer_top_k: int = uint("attention.indexer.top_k", least=1)
    compress_ratios: tuple[int, ...] = uints("attention.compress_ratios", 0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.indexer_head_size < self.n_rot:
            raise keys.error(
                "attention.indexer.key_length",
                f"must be at least rope.dimension_count = {self.n_rot}",
            )
        self._check_blocks(keys)
        self.ngram_layer = -1
        if keys.count("ple.layers"):
            self._load_ngrams(keys)

    def _check_blocks(self, keys: Keys) -> None:
        ratios = {*filter(None, self.compress_ratios)}
        if max(ratios, default=0) > MAX_BLOCK:
            raise keys.error("attention.compress_ratios", f"items must each be at most {MAX_BLOCK}")
        fit = [n > 1 and self.indexer_top_k % n == 0 for n in ratios]
        self.whole_blocks = len(ratios) <= 1 and all(fit)
        if self.n_layer_nextn and not self.whole_blocks:
            raise keys.error(
                "attention.compress_ratios",
                "of models with NextN layers must each be 0, or all the same number from 2 on that "
                f"divides indexer.top_k = {self.indexer_top_k}",
            )

    @property
    def n_embd_hidden(self) -> int:
        return self.n_stream * self.n_embd

    def _load_ngrams(self, keys: Keys) -> None:
        n_gram, n_each = keys.uint("ple.ngram_size"), keys.uint("ple.heads_per_ngram")
        if not 2 <= n_gram <= MAX_NGRAM:
            raise keys.error("ple.ngram_size", f"must be from 2 to {MAX_NGRAM}")
        n_heads = (n_gram - 1) * n_each
        if not 0 < n_heads <= MAX_HEADS:
            most = MAX_HEADS // (n_gram - 1)
            raise keys.error("ple.heads_per_ngram", f"must be from 1 to {most}")
        n_kernel, size = keys.uint("ple.conv_kernel"), keys.uint("embedding_length_per_layer_input")
        if not 2 <= n_kernel <= self.n_ctx_train:
            raise keys.error(
                "ple.conv_kernel", f"must be from 2 to context_length = {self.n_ctx_train}"
            )
        if size * n_heads != self.n_embd:
            raise keys.error(
                "embedding_length_per_layer_input",
                f"times {n_heads} heads must be embedding_length = {self.n_embd}",
            )
        self._check_ngram_layer(keys)
        self.ngrams = NGramSizes(n_gram, n_kernel, self.n_embd, self.n_stream)
        self.ngram_size = size
        self._load_hashes(keys, n_gram, n_each)

    def _check_ngram_layer(self, keys: Keys) -> None:
        layers = keys.uints("ple.layers", keys.count("ple.layers"))
        if len(layers) != 1 or not self.is_recr(layers[0]):
            raise keys.error("ple.layers", "must be one layer with linear attention")
        if all(map(self.is_recr, range(self.n_layer))):
            raise keys.error("ple.layers", "needs at least one layer with softmax attention")
        self.ngram_layer = layers[0]

    def _load_hashes(self, keys: Keys, n_gram: int, n_each: int) -> None:
        n_heads = (n_gram - 1) * n_each
        factors = _read_numbers(keys, "ple.layer_multipliers", n_gram)
        firsts = _read_numbers(keys, "ple.head_offsets", n_heads)
        counts = _read_numbers(keys, "ple.head_vocab_sizes", n_heads)
        for key, least in (("ple.head_offsets", 0), ("ple.head_vocab_sizes", 1)):
            if min(_read_numbers(keys, key, n_heads)) < least:
                raise keys.error(key, f"items must each be at least {least}")
        self.n_ngram_rows = max(map(int.__add__, firsts, counts))
        if self.n_ngram_rows > END_OF_ROWS:
            raise keys.error("ple.head_offsets", f"must not let rows exceed {END_OF_ROWS}")
        end = keys.uint("ple.eos_token_id")
        self.hashes = Hashes(
            n_gram,
            n_each,
            tuple(x % 2**64 for x in factors),
            firsts,
            counts,
            end,
            keys.uint("ple.image_token_id", 0) or end,
        )


def _read_numbers(keys: Keys, key: str, n: int) -> tuple[int, ...]:
    """Read the first n integers of a list, which may be wider than 32 bits."""
    return keys.values(key, n, None, as_int, longer=True)


class Qwen4ExpLinear(LinearAttention):
    """Stores inputs for rollback to every token of the range; sigmoids gate the results."""

    def conv_input(self, g: GraphBuilder, states: Tensor, x: Tensor, il: int) -> Tensor:
        return load_conv_state(g, states, x, self.hp.ssm_d_conv - 1, il)

    def apply_gate(self, g: GraphBuilder, output: Tensor, z: Tensor, il: int) -> Tensor:
        return mul(self.norm(g, output, il=il), sigmoid(z))


class CellAttention(GatedAttention):
    """Gated attention to cells that an indexer chooses, if the layer has blocks."""

    indexer_kind: ClassVar[type[PooledIndexer]] = PooledIndexer
    indexer: PooledIndexer | None = None

    def __init__(self, w: Weights, hp: Qwen4ExpHParams) -> None:
        super().__init__(w, hp, bias="unread")
        made = self.indexer_kind(
            w,
            n_embd=hp.n_embd,
            n_head=hp.indexer_n_head,
            size=hp.indexer_head_size,
            n_chosen=hp.indexer_top_k,
            n_pooled=hp.compress_ratios[w.il],
        )
        if hp.compress_ratios[w.il]:
            self.indexer = made

    def choose(self, g: GraphBuilder, cur: Tensor, il: int) -> tuple[Tensor | None, int]:
        if self.indexer is None:
            return None, 0
        chosen = self.indexer(g, cur, il)
        return mask_unchosen(g.inp_attn(il).kq_mask, chosen), chosen.ne[0]


class WholeBlockAttention(CellAttention):
    """Gated attention to whole blocks."""

    indexer_kind = MeanPoolIndexer
    indexer: MeanPoolIndexer | None = None

    def choose(self, g: GraphBuilder, cur: Tensor, il: int) -> tuple[Tensor | None, int]:
        if self.indexer is None:
            return None, 0
        chosen = self.indexer.choose(g, cur, il)
        mask = g.cb(chosen.mask(g.inp_attn(il).kq_mask), "kq_mask_qsa", il)
        return mask, chosen.cells.ne[0]


@dataclass(slots=True)
class Qwen4ExpLayer:
    """Layer over residual streams [n_embd, n_stream, n_tokens]; drafts: it is a NextN layer."""

    ngrams: NGrams | None
    attn_streams: GatedStreams
    attention: Block
    ffn_streams: GatedStreams
    feed_forward: Block
    drafts: bool = False

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int, last: bool) -> Tensor:
        x = cur if self.ngrams is None else self.ngrams(g, cur, il)
        cur, inject = self.attn_streams.read(g, x, il)
        cur = self.attention(g, cur if self.drafts else g.expand(cur), il)
        if last:  # only output rows remain
            n_embd, n_stream, n_tokens, _ = x.ne
            cur, inject = g.outputs(cur, inject)
            x = g.outputs(reshape(x, n_embd * n_stream, n_tokens))[0]
            x = reshape(x, n_embd, n_stream, x.ne[1])
        x = self.attn_streams.write(g, cur, x, inject, il)
        cur, inject = self.ffn_streams.read(g, x, il)
        return self.ffn_streams.write(g, self.feed_forward(g, cur, il), x, inject, il)


class Qwen4ExpNextN:
    """A layer after the trunk, fed with a token and the streams before it."""

    def __init__(self, w: Weights, hp: Qwen4ExpHParams, layer: Qwen4ExpLayer) -> None:
        n_embd = hp.n_embd
        self.layer = layer
        self.eh_proj = w.linear("nextn.eh_proj", 2 * n_embd, n_embd, scaled=False)
        self.enorm = w.norm("nextn.enorm", n_embd)
        self.hnorm = Norm(grouped_norm(w, "nextn.hnorm.weight", n_embd, hp.n_stream))
        self.head = GatedStreams(w, "nextn.hc_head", n_embd, hp.n_stream, hp.hc_rank, False)

    def build(self, g: GraphBuilder, token_embd: Tensor, il: int) -> Tensor:
        """Build the head's input, [n_embd, n_outputs]."""
        n_embd, n = g.hp.n_embd, self.head.n
        inp = g.add_input(InputEmbdH(n_embd, g.n_tokens, n * n_embd))
        embd = inp.embd if g.ubatch.token is None else g.rows(token_embd, inp.tokens)
        embd = self.enorm(g, g.cb(embd, "mtp_tok_embd", il), il=il)
        embd = repeat_4d(reshape(embd, n_embd, 1, g.n_tokens), n_embd, n, g.n_tokens, 1)
        g.cb(embd, "mtp_enorm", il)
        h = self.hnorm(g, reshape(inp.h, n_embd, n, g.n_tokens), "mtp_hnorm", il)
        cur = g.cb(self.eh_proj(g, concat(embd, h, 0)), "mtp_eh_proj", il)
        flat = join(self.layer(g, cur, il, False))
        cur = select_seeded(g, flat, il)
        cur = self.head.read(g, reshape(cur, n_embd, n, cur.ne[1]), il)[0]
        return g.cb(cur, "result_norm")


def join(x: Tensor) -> Tensor:
    """Join the streams of each token: [n_embd, n, T] -> [n * n_embd, T]."""
    return reshape(x, x.ne[0] * x.ne[1], x.ne[2])


def select_seeded(g: GraphBuilder, flat: Tensor, il: int) -> Tensor:
    """Select the rows of outputs; they seed the next draft, or all rows do."""
    every = g.cparams.embeddings_nextn and not g.cparams.embeddings_nextn_masked
    if every:
        g.cb(flat, "h_nextn", il)
    cur = g.outputs(flat)[0]
    g.res.t_h_nextn = flat if every else g.cb(cur, "h_nextn", il)
    return cur


class Qwen4Exp(EarlyDrafter):
    arch = "qwen4exp"
    HParams = Qwen4ExpHParams
    hp: Qwen4ExpHParams
    sizes = {48: "A3B"}
    names = NAMES | {"l_out": "l_last"}
    draft_names = NAMES
    trunk_tensor = "hc_attn_norm.weight"

    def declare_trunk(self, w: Weights) -> None:
        self.indexers: list[MeanPoolIndexer] = []
        super().declare_trunk(w)

    def declare_ends(self, w: Weights) -> None:
        hp = self.hp
        self.output = w.output(hp.n_embd, hp.n_vocab)
        if not self.finds_trunk(w):
            return
        self.streams = GatedStreams(w, "output_hc", hp.n_embd, hp.n_stream, hp.hc_rank, False)
        if hp.ngram_layer >= 0:
            name = "per_layer_token_embd.weight"
            info = w.info(name)
            n_rows = max(hp.n_ngram_rows, 0 if info is None else info.ne[1])
            self.ngram_table = w.tensor(name, hp.ngram_size, n_rows)

    def layer(self, w: Weights, il: int) -> Qwen4ExpLayer:
        hp = self.hp

        def streams(kind: str) -> GatedStreams:
            return GatedStreams(w, f"hc_{kind}", hp.n_embd, hp.n_stream, hp.hc_rank)

        return Qwen4ExpLayer(
            NGrams(w, hp.ngrams) if il == hp.ngram_layer else None,
            streams("attn"),
            self.attention(w, il),
            streams("ffn"),
            self.feed_forward(w, il),
            il >= hp.n_layer,
        )

    def attention(self, w: Weights, il: int) -> Block:
        if self.hp.layers[il].recurrent:
            return Qwen4ExpLinear(w, self.hp)
        if not self.hp.whole_blocks:
            return CellAttention(w, self.hp)
        made = WholeBlockAttention(w, self.hp)
        if made.indexer is not None and il < self.hp.n_layer:
            self.indexers.append(made.indexer)
        return made

    def declare_nextn(self, w: Weights) -> None:
        made = ((w.layer(il), self.layer(w.layer(il), il)) for il in self.nextn_layers(w))
        self.drafting = [Qwen4ExpNextN(own, self.hp, layer) for own, layer in made]

    def lm_head(self, nextn: int | None = None) -> Linear | None:
        return self.output

    def build_draft(self, g: GraphBuilder) -> None:
        number = g.cparams.nextn_layer
        il = self.hp.n_layer + number
        g.expand(g.inp_attn(il).kq_mask)  # the first inputs in the graph
        attention = self.drafting[number].layer.attention
        assert isinstance(attention, WholeBlockAttention)
        if attention.indexer is not None:
            attention.indexer.inputs(g)
        g.res.t_embd = cur = self.drafting[number].build(g, self.token_embd, il)
        self.head(g, cur)

    def feed_forward(self, w: Weights, il: int) -> Block:
        hp = self.hp
        experts = Experts(
            w,
            hp,
            hp.n_ff_exp[il],
            experts=ExpertSet(merged=True),
            weighing=Weighing(scale=hp.expert_weights_scale),
        )
        return SharedExperts(w, hp, experts, hp.n_ff_shexp, gated=True)

    def memory_spec(self, il: int) -> MemorySpecs:
        kept, hp = super().memory_spec(il), self.hp
        if il == hp.ngram_layer:
            state = StateSpec(hp.n_embd_r, hp.n_embd_s, n_embd_p=hp.ngrams.n_state)
            return state, Tokens()
        if hp.layers[il].recurrent or not hp.compress_ratios[il]:
            return kept
        if hp.whole_blocks:  # keys of a token and of a block
            size, ratio = 2 * hp.indexer_head_size, hp.compress_ratios[il]
            return *kept, Index(size, rotated=False, kpool=ratio, by_order=True)
        return *kept, Index(hp.indexer_head_size, rotated=False, pooled=True)

    def embed(self, g: GraphBuilder) -> Tensor:
        n, n_embd = self.hp.n_stream, self.hp.n_embd
        hashed = self.hp.ngram_layer >= 0
        if hashed and self.hp.whole_blocks:  # in b11739's order
            ngram_rows(g, self.ngram_table, self.hp.hashes)
        cur = super().embed(g)
        if hashed and not self.hp.whole_blocks:
            ngram_rows(g, self.ngram_table, self.hp.hashes)
        for indexer in self.indexers[:1]:
            indexer.inputs(g)
        cur = repeat_4d(reshape(cur, n_embd, 1, g.n_tokens), n_embd, n, g.n_tokens, 1)
        g.cb(cur, "hc_init")
        return g.expand(cur) if self.hp.whole_blocks else cur

    def finish(self, g: GraphBuilder, cur: Tensor, selected: bool) -> None:
        if g.cparams.embeddings_nextn or self.hp.whole_blocks:
            g.res.t_h_nextn = g.expand(g.cb(join(cur), "h_nextn"))
        if not selected:
            n_embd, n, *_ = cur.ne
            flat = g.outputs(join(cur))[0]
            cur = reshape(flat, n_embd, n, flat.ne[1])
        cur = self.streams.read(g, cur, -1)[0]
        g.res.t_embd = g.cb(cur, "result_norm")
        self.head(g, cur)
