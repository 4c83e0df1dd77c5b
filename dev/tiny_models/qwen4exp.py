"""Tiny models of Qwen4, the experimental one."""

from dev.tiny_models import DRAFT_RUNS, ONLY_DRAFT, Tiny, Wide
from dev.tiny_models.qwen35 import DENSE
from dev.tiny_models.qwen35moe import EXPERTS

# Layers: delta net, attention to chosen cells.
CHOSEN = {
    **DENSE,
    **EXPERTS,
    "hyper_connection.count": 3,
    "hyper_connection.low_rank": 16,
    "attention.indexer.head_count": 2,
    "attention.indexer.key_length": 32,
    "attention.indexer.top_k": 8,
    "attention.compress_ratios": [0, 1],
}
LEFT_OUT = ["*.attn_[qkv].bias"]  # llama.cpp has them, and does not add them
GAIN = {"*.ssm_dt.bias": 3, "*.ssm_out.weight": 1.5, "*.attn_output.weight": 1.5, "*_up.weight": 2}
NEXTN = CHOSEN | {
    "block_count": 4,
    "nextn_predict_layers": 1,
    "attention.recurrent_layers": [True, False, False, False],
    "attention.compress_ratios": [0, 4, 4, 4],
}
# The later llama.cpp has no other form of the indexer.
NODES = ("nodes-fa-on", "nodes-fa-off", "nodes-sequences", "nodes-snapshots")
TRUNK = (*NODES, "logits", "exact", "sequences")

TINY = {
    # Groups of two and of three tokens, each with two table rows.
    "ngrams": Tiny(
        keys=CHOSEN
        | {
            "attention.indexer.top_k": 200,
            "attention.compress_ratios": [0, 4],
            "ple.layers": [0],
            "ple.ngram_size": 3,
            "ple.heads_per_ngram": 2,
            "ple.conv_kernel": 3,
            "ple.eos_token_id": 5,
            "embedding_length_per_layer_input": 16,
            "ple.layer_multipliers": [Wide(x) for x in (1, 0x9E3779B97F4A7C15, 31)],
            "ple.head_offsets": [Wide(x) for x in (0, 61, 120, 187)],
            "ple.head_vocab_sizes": [Wide(x) for x in (61, 59, 67, 53)],
        },
        without=LEFT_OUT,
        gain=GAIN,
        newest=True,
        runs=TRUNK,
    ),
    # Blocks of one cell, which the later llama.cpp refuses. The reference selects any of equal
    # scores, so larger blocks would have no definite selection.
    "chosen": Tiny(keys=CHOSEN | {"attention.indexer.head_count": 12}, without=LEFT_OUT, gain=GAIN),
    # A NextN layer. The trunk and the layer attend to all blocks.
    "mtp": Tiny(
        keys=NEXTN | {"attention.indexer.top_k": 200},
        without=LEFT_OUT,
        gain=GAIN,
        newest=True,
        runs=(*NODES, *DRAFT_RUNS),
    ),
    # The trunk and a NextN layer choose blocks.
    "blocks": Tiny(
        keys=NEXTN, without=LEFT_OUT, gain=GAIN, newest=True, runs=(*TRUNK, *ONLY_DRAFT)
    ),
}
