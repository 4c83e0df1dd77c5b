"""Tiny models of Hunyuan, text only."""

from llama_py.models.tiny import Tiny
from llama_py.models.tiny.hunyuan_vl import DENSE

TINY = {"dense": Tiny(keys={**DENSE, "rope.dimension_sections": [4, 4, 4, 4]}, familiar=True)}
