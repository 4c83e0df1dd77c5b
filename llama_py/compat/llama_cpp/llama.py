"""`Llama` (`LlamaCppModel`): a model with llama-cpp-python's methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from llama_py.compat.llama_cpp._arguments import (
    LogitsProcessorList,
    MinTokensLogitsProcessor,
    StoppingCriteriaList,
)
from llama_py.compat.llama_cpp._chats import LlamaChats
from llama_py.compat.llama_cpp._embeddings import embed_texts
from llama_py.compat.llama_cpp._options import LlamaOptions, pooling_name
from llama_py.compat.llama_cpp._shapes import Body
from llama_py.compat.llama_cpp._state import LlamaState
from llama_py.compat.llama_cpp.llama_cache import longest_token_prefix
from llama_py.compat.llama_cpp.llama_tokenizer import LlamaTokenizer
from llama_py.loading.hub import download_matching
from llama_py.params import POOLING
from llama_py.support.signature import describe

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Llama",
    "LlamaState",
    "LogitsProcessorList",
    "MinTokensLogitsProcessor",
    "StoppingCriteriaList",
]


class LlamaCppModel(LlamaChats):
    """A model with one context, with the methods of llama-cpp-python.

        llm = Llama("model.gguf", n_ctx=2048)
        print(llm("Once upon a time", max_tokens=32)["choices"][0]["text"])

    The model is `llama_py_model`, a `llama_py.Model`; its context is `prefix.ctx`. Errors of
    arguments are ValueErrors, and TypeErrors for unknown names. Arguments after the first are
    keywords.
    """

    def __init__(self, model_path: str, **options: Any) -> None:
        """Load a model; options are the fields of LlamaOptions, with llama-cpp-python's defaults.

        ValueError if the file does not exist; TypeError for an unknown option.
        """
        super().__init__(str(model_path), LlamaOptions(**options))

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None = None,
        additional_files: Sequence[str] | None = None,
        local_dir: str | PathLike[str] | None = None,
        local_dir_use_symlinks: Any = "auto",
        cache_dir: str | PathLike[str] | None = None,
        **options: Any,
    ) -> Self:
        """Download a model from the Hugging Face Hub (with its library), and load it.

        filename          name or pattern of the model's file, such as *Q4_K_M.gguf; None: Q4_K_M,
                          Q8_0 or the first file. All shards of a file are downloaded
        additional_files  names or patterns of other files to download
        local_dir         folder for the files, instead of the library's cache
        options           the fields of LlamaOptions

        ValueError if no file, or several files, match a name.
        """
        path = download_matching(
            repo_id, filename, additional_files or (), local_dir=local_dir, cache_dir=cache_dir
        )
        return cls(path, **options)

    def embed(
        self,
        input: str | Sequence[str],
        normalize: bool = False,
        truncate: bool = True,
        return_count: bool = False,
    ) -> Any:
        """Return the embedding of a text as a list, or a list of lists for several texts; without
        pooling one list per token.

        truncate      cut texts to n_batch tokens; False: ValueError for longer texts
        return_count  return a tuple with the number of tokens

        RuntimeError without `embedding=True`.
        """
        if not self.options.embedding:
            raise RuntimeError(
                "Llama model must be created with embedding=True to call this method"
            )
        texts = [input] if isinstance(input, str) else list(input)
        tokens = [self.tokenize(text.encode("utf-8", "surrogateescape")) for text in texts]
        pooling = pooling_name(self.options)
        limit = self.n_batch, truncate
        found, n = embed_texts(self.llama_py_model, tokens, pooling, normalize, *limit)
        result = found[0] if isinstance(input, str) else found
        return (result, n) if return_count else result

    def create_embedding(self, input: str | Sequence[str], model: str | None = None) -> Body:
        """Return the embeddings of texts in the form of the OpenAI API; see `embed`."""
        texts = [input] if isinstance(input, str) else list(input)
        found, n = self.embed(texts, return_count=True)
        data = [
            {"object": "embedding", "embedding": one, "index": i} for i, one in enumerate(found)
        ]
        usage = {"prompt_tokens": n, "total_tokens": n}
        return {"object": "list", "data": data, "model": model or self.model_path, "usage": usage}

    def pooling_type(self) -> int:
        """Return the pooling of embeddings, LLAMA_POOLING_TYPE_*."""
        name = pooling_name(self.options)
        return POOLING.index(self.llama_py_model.hparams.pooling if name == "auto" else name)

    def tokenizer(self) -> LlamaTokenizer:
        """Return the tokenizer of the file."""
        return LlamaTokenizer(self)

    @staticmethod
    def longest_token_prefix(a: Sequence[int], b: Sequence[int]) -> int:
        """Return the length of the longest common start of two lists of tokens."""
        return longest_token_prefix(a, b)

    def __getstate__(self) -> dict[str, Any]:
        """Return the path and the options: the loaded copy has no tokens."""
        return {"model_path": self.model_path, **vars(self.options)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


describe(LlamaCppModel.__init__, LlamaOptions)
Llama = LlamaCppModel  # the architecture's class has this name
