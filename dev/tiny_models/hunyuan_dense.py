"""Tiny models of Hunyuan, text only."""

from dev.tiny_models import Tiny
from dev.tiny_models.hunyuan_vl import DENSE

TINY = {"dense": Tiny(keys={**DENSE, "rope.dimension_sections": [4, 4, 4, 4]}, familiar=True)}
