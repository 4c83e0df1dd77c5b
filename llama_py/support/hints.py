"""Hints for attributes that belong to another object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

OF_A_MODEL = "use ctx.model.{name}"
OF_A_CONTEXT = "use a context: ctx = model.context(), then ctx.{name}"
LIBRARIES = "use llama_py.load(path)"  # llama-cpp-python's, transformers' and mlx-lm's first names
MODULE = dict(
    Llama=f"{LIBRARIES}, or llama_py.compat.llama_cpp.Llama",
    LLM=LIBRARIES,
    AutoModelForCausalLM=LIBRARIES,
    from_pretrained="use llama_py.Model.from_pretrained(repo_id, filename)",
)

MODEL = {
    **dict.fromkeys(
        ("decode", "encode", "prepare", "save_state", "load_state", "set_adapters", "memory",
         "set_control_vector", "n_ctx", "cparams", "reuse"), OF_A_CONTEXT),
    **dict.fromkeys(("create_completion", "complete", "completion"), "use generate"),
    **dict.fromkeys(("create_chat_completion", "ask", "say"),
                    "use chat; llama_py.Conversation(model.context()) keeps the conversation"),
    "chat_stream": "use stream_chat", "create_embedding": "use embed", "embeddings": "use embed",
    "n_vocab": "use hparams.n_vocab", "n_embd": "use hparams.n_embd",
    "logits": "use the result of model.context().decode(ids)",
}  # fmt: skip
CONTEXT = {
    **dict.fromkeys(
        ("chat", "stream_chat", "embed", "tokenize", "detokenize", "tokenizer", "hparams", "arch",
         "chat_template", "apply_chat_template", "load_adapter"), OF_A_MODEL),
    **dict.fromkeys(("generate", "stream"),
                    "use llama_py.stream(ctx, prompt), or ctx.model.{name}"),
    **dict.fromkeys(("ask", "say"), "use llama_py.Conversation(ctx).{name}"),
    "eval": "use the result of decode", "reset": "use clear", "logits": "use the result of decode",
}  # fmt: skip


ELSEWHERE = {"Model": MODEL, "Context": CONTEXT}


class Hinting:
    """Names another object of the library that has a missing attribute in AttributeError."""

    if not TYPE_CHECKING:  # or every name would be one

        def __getattr__(self, name: str) -> Any:
            for kind in type(self).__mro__:
                hint = ELSEWHERE.get(kind.__name__, {}).get(name)
                if hint is not None:
                    raise AttributeError(
                        f"{kind.__name__} has no attribute {name!r}; {hint.format(name=name)}",
                        name=name,
                        obj=self,
                    )
            return object.__getattribute__(self, name)  # raises the original error
