"""What a user may choose, each choice declared once: see option.py, and README.md to add one."""

from llama_py.params.context import ContextParams
from llama_py.params.generate import GenerateParams
from llama_py.params.model import ModelParams
from llama_py.params.option import Option, Params, option, options_of
from llama_py.params.sampling import SamplingParams

__all__ = [
    "ContextParams", "GenerateParams", "ModelParams", "Option", "Params", "SamplingParams",
    "option", "options_of",
]  # fmt: skip
