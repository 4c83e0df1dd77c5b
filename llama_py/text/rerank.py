"""Rerankers: scores of how well texts answer a query."""

from __future__ import annotations

from collections.abc import Sequence

from ggml_py.errors import ContextError
from llama_py.batch import F32
from llama_py.loading.model import LoadedModel
from llama_py.text.embed import embed

TEMPLATE = "tokenizer.chat_template.rerank"


def rerank(model: LoadedModel, query: str, texts: Sequence[str]) -> F32:
    """Score texts for a query, higher is better: F32 [n_texts], or [n_texts, n_cls_out] if
    n_cls_out > 1.

    Raises ContextError if the model is not a reranker.
    """
    check_reranks(model)
    found = embed(model, [pair(model, [query, text]) for text in texts], "rank")
    return found[:, 0] if model.hparams.n_cls_out == 1 else found


def check_reranks(model: LoadedModel) -> None:
    """Raise ContextError if the model has no classifier."""
    classifier = model.architecture.classifier
    if classifier is None or (classifier.dense is None and classifier.out is None):
        raise ContextError(
            f"models of architecture {model.arch!r} have no classifier, so they cannot rerank; "
            "use a reranking model"
        )


def labels(model: LoadedModel) -> list[str]:
    """Return the names of the scores, or their numbers if the file has no names."""
    given = model.file.metadata.get(f"{model.arch}.classifier.output_labels")
    n = model.hparams.n_cls_out
    names = [str(x) for x in given] if isinstance(given, list) and len(given) == n else [""] * n
    return [name or str(i) for i, name in enumerate(names)]


def pair(model: LoadedModel, parts: Sequence[str]) -> list[int]:
    """Tokenize a query and a text by the file's prompt, else joined by end and separator tokens
    (examples/embedding/embedding.cpp). Without a prompt there may be more parts."""
    t = model.tokenizer
    template = model.file.metadata.get(TEMPLATE)
    if isinstance(template, str) and len(parts) > 1:
        prompt = template.replace("{query}", parts[0]).replace("{document}", parts[1])
        return t.tokenize(prompt)
    between = [
        t.vocab.texts[t.special_ids[name]]
        for name, added in (("eos", t.vocab.add_eos), ("sep", t.vocab.add_sep))
        if added and name in t.special_ids
    ]
    return t.tokenize("".join(between).join(parts))
