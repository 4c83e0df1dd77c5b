"""Exception tree: every error that a user can cause, with the remedy in its message.

GGMLError
├── ShapeError         tensors break a rule of an op (shape, type or layout)
├── UnsupportedOp      no backend can run this node; the message has every backend's reason
├── OutOfRange         an index among an op's data names a row that does not exist
├── AllocError         memory for a graph cannot be allocated
├── BackendError       a backend is missing, did not load, or its device failed
│   └── BoundsError        a kernel accessed memory outside its node's tensors
└── ModelError         a model file or a request that does not fit the model
    ├── GGUFError          the bytes are not a valid GGUF file
    ├── UnknownArchitecture
    ├── HParamsError       a metadata key is missing or has an invalid value
    ├── WeightsError       tensors missing, unused or of a wrong shape, all in one message
    ├── TokenizerError
    ├── GrammarError       a malformed or too large grammar, schema or expression
    ├── AnswerError        a response that does not satisfy its JSON schema
    └── ContextError       a prompt or batch that does not fit the context
"""


class GGMLError(Exception):
    """Base of every error this project raises on purpose."""


class ShapeError(GGMLError, ValueError):
    """Tensors that break an op's rule: rule, tensors' names, ne and types are in the message."""


class UnsupportedOp(GGMLError):
    """Error that no backend can run a node; the message lists each backend's reason."""


class OutOfRange(GGMLError, IndexError):
    """An index among an op's data that names no row of a source: `ggml_py/backend/indices.py`."""


class AllocError(GGMLError, MemoryError):
    """Memory for a graph, a cache or a weight cannot be allocated."""


class BackendError(GGMLError, RuntimeError):
    """A backend is missing, failed to load, or its device failed."""


class BoundsError(BackendError):
    """A kernel accessed memory outside its node's tensors: node, kernel, access and place. Checked
    only with LLAMA_PY_CHECK_BOUNDS=1.
    """


class ModelError(GGMLError, ValueError):
    """A model file, or a request to a model, that cannot be served."""


class GGUFError(ModelError):
    """The file is not a GGUF file that can be trusted: path, offset and reason are in the
    message.
    """


class UnknownArchitecture(ModelError):
    """`general.architecture` names no known model; the message lists the known and the nearest."""


class HParamsError(ModelError):
    """A metadata key is missing, has the wrong type, or a value that makes no sense."""


class WeightsError(ModelError):
    """Tensors that are missing, unused or of a wrong shape, all in one message."""


class TokenizerError(ModelError):
    """The tokenizer's metadata is missing, broken or of an unknown kind."""


class GrammarError(ModelError):
    """A grammar, JSON schema or regular expression that is malformed, too large, or impossible to
    satisfy. The message has line and column if they are known."""


class AnswerError(ModelError):
    """A response that violates a part of its JSON schema that a grammar cannot enforce.

    Attributes:
        answer: The complete response.
    """

    def __init__(self, message: str, answer: str = "") -> None:
        super().__init__(message)
        self.answer = answer


class ContextError(ModelError):
    """A batch, prompt or sequence operation that does not fit the context."""
