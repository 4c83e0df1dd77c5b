"""Chat handlers and formatters with llama-cpp-python's names.

A handler is a function of a `Llama` and the arguments of `create_chat_completion`; it returns the
response. A formatter converts messages to a prompt, and becomes a handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ggml_py.errors import ModelError
from llama_py.chat import ChatTemplate
from llama_py.compat.llama_cpp._arguments import Ids, StoppingCriteriaList
from llama_py.compat.llama_cpp._shapes import chat_chunks, chat_from_completion
from llama_py.compat.llama_cpp.llama_grammar import LlamaGrammar
from llama_py.grammar.response_format import sampling_options

__all__ = [
    "ChatFormatterResponse",
    "Jinja2ChatFormatter",
    "LlamaChatCompletionHandlerNotFoundException",
    "MTMDChatHandler",
    "chat_formatter_to_chat_completion_handler",
    "find_handler",
    "get_chat_completion_handler",
    "hf_tokenizer_config_to_chat_completion_handler",
    "hf_tokenizer_config_to_chat_formatter",
    "register_chat_completion_handler",
    "register_chat_format",
]

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)
_HANDLERS: dict[str, Handler] = {}
# Arguments of a chat completion that a completion does not have.
_CHAT_ONLY = (
    "functions",
    "function_call",
    "tools",
    "tool_choice",
    "response_format",
    "logprobs",
    "top_logprobs",
)


class LlamaChatCompletionHandlerNotFoundException(ModelError):
    """Error that no handler has a name; the message lists the known names."""


@dataclass
class ChatFormatterResponse:
    """Prompt of a conversation.

    stop               texts that end the response
    stopping_criteria  criteria that end the response
    added_special      the prompt begins with BOS
    """

    prompt: str
    stop: str | Sequence[str] | None = None
    stopping_criteria: Any = None
    added_special: bool = False


Formatter = Callable[..., ChatFormatterResponse]


def register_chat_completion_handler(name: str) -> Callable[[H], H]:
    """Return a decorator that registers a handler for `chat_format=name`. ModelError if the name is
    registered."""

    def register(handler: H) -> H:
        if name in _HANDLERS:
            raise ModelError(f"a chat handler is already registered for {name!r}; use another name")
        _HANDLERS[name] = handler
        return handler

    return register


def register_chat_format(name: str) -> Callable[[Formatter], Formatter]:
    """Return a decorator that registers a formatter for `chat_format=name`."""

    def register(formatter: Formatter) -> Formatter:
        handler = chat_formatter_to_chat_completion_handler(formatter)
        register_chat_completion_handler(name)(handler)
        return formatter

    return register


def find_handler(name: str) -> Handler | None:
    """Return the registered handler of a name, or None."""
    return _HANDLERS.get(name)


def get_chat_completion_handler(name: str) -> Handler:
    """Return the registered handler of a name."""
    if name not in _HANDLERS:
        raise LlamaChatCompletionHandlerNotFoundException(
            f"no chat handler is registered for {name!r}; registered: "
            f"{', '.join(_HANDLERS) or 'none'}"
        )
    return _HANDLERS[name]


def chat_formatter_to_chat_completion_handler(formatter: Formatter) -> Handler:
    """Return a handler that completes the prompt of a formatter. Tools are passed to the formatter
    only: calls are not parsed."""

    def handle(*, llama: Any, messages: Sequence[Mapping[str, Any]], **options: Any) -> Any:
        chat = {name: options.pop(name, None) for name in _CHAT_ONLY}
        tools = {name: chat[name] for name in _CHAT_ONLY[:4]}
        found = formatter(messages=messages, **tools)
        prompt = llama.tokenize(
            found.prompt.encode(), add_bos=not found.added_special, special=True
        )
        form = sampling_options(chat["response_format"])
        if form:
            [(kind, value)] = form.items()
            options["grammar"] = LlamaGrammar(kind, value)
        stop = [*_texts(options.pop("stop", None)), *_texts(found.stop)]
        n_top = (chat["top_logprobs"] or 0) if chat["logprobs"] else None
        more = {"logprobs": n_top, "stopping_criteria": found.stopping_criteria, "stop": stop}
        completion = llama.create_completion(prompt, **options, **more)
        if options.get("stream"):
            return chat_chunks(completion)
        return chat_from_completion(completion)

    return handle


class Jinja2ChatFormatter:
    """Formatter of a Jinja template, which is rendered in a sandbox."""

    def __init__(
        self,
        template: str,
        eos_token: str,
        bos_token: str,
        add_generation_prompt: bool = True,
        stop_token_ids: Sequence[int] | None = None,
    ) -> None:
        """Compile a template; stop_token_ids: tokens that end a response."""
        self._template = ChatTemplate(template, bos_token, eos_token)
        self._template.check()
        self.eos_token, self.add_generation_prompt = eos_token, add_generation_prompt
        self.stop_token_ids = stop_token_ids

    def __call__(
        self, *, messages: Sequence[Mapping[str, Any]], **variables: Any
    ) -> ChatFormatterResponse:
        """Render messages. ModelError, a ValueError, if the template refuses them."""
        variables["add_generation_prompt"] = self.add_generation_prompt
        prompt = self._template.render_plain(messages, **variables)
        ends = self.stop_token_ids
        criteria = None if ends is None else StoppingCriteriaList([_end_criterion(ends)])
        return ChatFormatterResponse(prompt, [self.eos_token], criteria, added_special=True)

    def to_chat_handler(self) -> Handler:
        """Return a handler of this formatter."""
        return chat_formatter_to_chat_completion_handler(self)


def hf_tokenizer_config_to_chat_formatter(
    tokenizer_config: Mapping[str, Any], add_generation_prompt: bool = True
) -> Formatter:
    """Return a formatter of the chat template of a tokenizer_config.json; its prompts of a
    conversation that awaits no response end with the end token."""
    names = ("chat_template", "bos_token", "eos_token")
    template, bos, eos = (_token(tokenizer_config.get(name)) for name in names)
    if template is None or bos is None or eos is None:
        raise ModelError(f"tokenizer_config must have {', '.join(names)} as strings")
    source, start, end = template, bos, eos
    formatter = ChatTemplate(source, start, end)

    def render(*, messages: Sequence[Mapping[str, Any]], **_: Any) -> ChatFormatterResponse:
        asked = messages
        if add_generation_prompt:
            asked = [*messages, {"role": "assistant", "content": ""}]
        return ChatFormatterResponse(
            formatter.render_plain(asked), [end, start], added_special=True
        )

    return render


def hf_tokenizer_config_to_chat_completion_handler(
    tokenizer_config: Mapping[str, Any], add_generation_prompt: bool = True
) -> Handler:
    """Return a handler of the chat template of a tokenizer_config.json."""
    formatter = hf_tokenizer_config_to_chat_formatter(tokenizer_config, add_generation_prompt)
    return chat_formatter_to_chat_completion_handler(formatter)


class MTMDChatHandler:
    """Handler of messages with images, for all vision encoders of llama-py; other names of such
    handlers are the same class."""

    def __init__(self, clip_model_path: str, verbose: bool = True) -> None:
        """Use an encoder file (mmproj), which the first message loads; verbose has no effect."""
        self.clip_model_path, self.verbose = clip_model_path, verbose
        self._loaded: Any = None

    def __call__(self, *, llama: Any, messages: Sequence[Mapping[str, Any]], **options: Any) -> Any:
        """Return the response to messages, like `Llama.template_chat`."""
        if self._loaded is not llama:
            llama.load_vision(self.clip_model_path)
            self._loaded = llama
        return llama.template_chat(messages, **options)


def _texts(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _token(given: Any) -> str | None:
    """Return the text of a token, which may be an object."""
    found = given.get("content") if isinstance(given, Mapping) else given
    return found if isinstance(found, str) else None


def _end_criterion(ends: Sequence[int]) -> Callable[[Ids, Any], bool]:
    return lambda ids, logits: bool(np.isin(ids[-1], list(ends)))


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return the handler of images for all classes of vision handlers."""
        if name.endswith("ChatHandler"):
            return MTMDChatHandler
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
