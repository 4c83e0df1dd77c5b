"""Tiny models of Gemma, BERT and T5, and of older architectures."""

from __future__ import annotations

from typing import Any

VOCAB = {"vocab_size": 128}
LAYER_TYPES = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
GEMMA = {"head_dim": 16, "sliding_window": 64, "tie_word_embeddings": True}
T5 = {"vocab_size": 128, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2,
      "num_decoder_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}  # fmt: skip
GEMMA3N = {
    "head_dim": 16, "vocab_size": 130, "vocab_size_per_layer_input": 128, "sliding_window": 64,
    "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 1, "laurel_rank": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "activation_sparsity_pattern": [0.95, 0.5, 0.0, 0.75],
}  # fmt: skip
GEMMA4 = {
    "head_dim": 16, "global_head_dim": 32, "layer_types": LAYER_TYPES, "sliding_window": 64,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 128,
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma": ("GemmaConfig", {"head_dim": 16, "tie_word_embeddings": True}),
    "gemma3": ("Gemma3TextConfig", {**GEMMA, "layer_types": LAYER_TYPES}),
    "gemma-embedding": ("Gemma3TextConfig", {**GEMMA, "use_bidirectional_attention": True}),
    "gemma3n": ("Gemma3nTextConfig", GEMMA3N),
    "gemma4": ("Gemma4TextConfig", {**GEMMA4, "num_kv_shared_layers": 1,
                                    "layer_types": ["sliding_attention", "full_attention"] * 2,
                                    "use_double_wide_mlp": True}),
    "gemma4-moe": ("Gemma4TextConfig", {**GEMMA4, "hidden_size_per_layer_input": 0,
                                        "enable_moe_block": True, "num_experts": 4,
                                        "top_k_experts": 2, "moe_intermediate_size": 48,
                                        "attention_k_eq_v": True,
                                        "num_global_key_value_heads": 1}),
    "bert": ("BertConfig", {}),
    "bert-classifier": ("BertConfig", {"id2label": {0: "no", 1: "yes", 2: "perhaps"}}),
    "distilbert": ("DistilBertConfig", {}),
    "distilbert-classifier": ("DistilBertConfig", {"id2label": {0: "no", 1: "yes"}}),
    "roberta": ("RobertaConfig", {"pad_token_id": 1}),
    "xlm-roberta-classifier": ("XLMRobertaConfig", {"pad_token_id": 1, "num_labels": 1}),
    "modernbert": ("ModernBertConfig", {"layer_norm_eps": 1e-5}),
    "modernbert-classifier": ("ModernBertConfig", {"layer_norm_eps": 1e-5,
                                                   "id2label": {0: "a", 1: "b", 2: "c"}}),
    "eurobert": ("EuroBertConfig", {}),
    "phi2": ("PhiConfig", {"num_key_value_heads": 4}),
    "phi3-long": ("Phi3Config", {
        "original_max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0,
                            "long_factor": [1.0 + i for i in range(8)],
                            "short_factor": [1.0] * 8}}),
    "phimoe": ("PhimoeConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "starcoder": ("GPTBigCodeConfig", {**VOCAB, "n_embd": 64, "n_layer": 4, "n_head": 4}),
    "falcon": ("FalconConfig", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon-7b": ("FalconConfig", {"multi_query": True, "num_kv_heads": 1}),
    "gptneox": ("GPTNeoXConfig", {}),
    "jais2": ("Jais2Config", {}),
    "dbrx": ("DbrxConfig", {
        **VOCAB, "d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 1024,
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
        "ffn_config": {"hidden_size": 64, "ffn_hidden_size": 96, "moe_num_experts": 4,
                       "moe_top_k": 2, "ffn_act_fn": {"name": "silu"}}}),
    "t5": ("T5Config", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "t5encoder": ("T5Config", T5),
    "umt5": ("UMT5Config", T5),
}  # fmt: skip
CLASSES = {
    "gemma-embedding": "Gemma3TextModel",
    "bert": "BertModel",
    "bert-classifier": "BertForSequenceClassification",
    "distilbert": "DistilBertModel",
    "distilbert-classifier": "DistilBertForSequenceClassification",
    "roberta": "RobertaModel",
    "xlm-roberta-classifier": "XLMRobertaForSequenceClassification",
    "modernbert": "ModernBertModel",
    "modernbert-classifier": "ModernBertForSequenceClassification",
    "eurobert": "EuroBertModel",
    "t5": "T5ForConditionalGeneration",
    "t5encoder": "T5EncoderModel",
    "umt5": "UMT5ForConditionalGeneration",
}
CLASSES |= {
    name: f"{kind.removesuffix('Config').removesuffix('Text')}ForCausalLM"
    for name, (kind, _) in MODELS.items() if name not in CLASSES
}  # fmt: skip
CONVERTER: dict[str, dict[str, Any]] = {
    "phimoe": {"architectures": ["PhiMoEForCausalLM"], "original_max_position_embeddings": 512},
    "gptneox": {"model_type": "other", "rotary_pct": 0.25},  # of transformers 4
    "eurobert": {"classifier_pooling": "mean"},
}
TOKENIZER = {"model": {"vocab": {str(i): i for i in range(128)}}, "added_tokens": []}
WITH_TOKENIZER = ("gemma3", "gemma-embedding", "gemma4", "gemma4-moe")
FILES = {name: {"tokenizer.json": TOKENIZER} for name in WITH_TOKENIZER}
