"""Requirements of draft methods for models and contexts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ggml_py.errors import ContextError
from llama_py.context import Context
from llama_py.decoding.drafting.drafter import Drafter, drafter
from llama_py.gguf.file import GGUFFile
from llama_py.loading.model import LoadedModel
from llama_py.models import architecture, known_architectures
from llama_py.params.speculative import SpeculativeParams

MAX_PLANES = 8  # tokens that states can roll back; longer drafts need a checkpoint
NEXTN, BY_NEXTN = ".nextn.eh_proj.weight", "draft-mtp"


def resolve_draft_method(p: SpeculativeParams) -> SpeculativeParams:
    """Return p with a method that fits `model_draft` if it has no method: the draft model's, else
    NextN layers (common_speculative_types_from_gguf)."""
    if p.spec_type or p.model_draft is None:
        return p
    if isinstance(p.model_draft, LoadedModel):
        name = _draft_method(p.model_draft.file)
    else:
        with GGUFFile.open(p.model_draft) as file:
            name = _draft_method(file)
    return replace(p, spec_type=(name,)) if name else p


def _draft_method(file: GGUFFile) -> str:
    """Return the draft method of a model file; "" for a general model."""
    arch = file.architecture
    if arch in known_architectures() and (name := architecture(arch).draft_method(file.tensors)):
        return name
    return BY_NEXTN if any(name.endswith(NEXTN) for name in file.tensors) else ""


def n_planes(p: SpeculativeParams) -> int:
    """Return `n_rs_seq` of a context that drafts, so that states roll back without checkpoints."""
    longest = (drafter(name).n_max(p) for name in resolve_draft_method(p).drafters)
    return max((n for n in longest if n <= MAX_PLANES), default=0)


def needs_nextn(p: SpeculativeParams) -> bool:
    """Return True if the model itself must be loaded with its NextN layers."""
    kinds = [drafter(name) for name in resolve_draft_method(p).drafters]
    given = p.model_draft is not None and sum(kind.uses_draft_model for kind in kinds) == 1
    return not given and any(kind.loads_nextn for kind in kinds)


def load_draft(
    ctx: Context, p: SpeculativeParams, kinds: Iterable[type[Drafter]]
) -> LoadedModel | None:
    """Load `model_draft` on the model's devices; None if it is loaded, or not given."""
    if p.model_draft is None:
        return None
    users = [kind for kind in kinds if kind.uses_draft_model]
    if not users:
        raise ContextError(
            f"model_draft = {p.model_draft} has no effect: spec_type = "
            f"{','.join(p.drafters) or 'none'} does not use a draft model; add draft-simple or "
            "draft-mtp to spec_type"
        )
    if isinstance(p.model_draft, LoadedModel):
        return None
    nextn = any(kind.loads_nextn for kind in users)
    return LoadedModel(p.model_draft, list(ctx.devices), load_mtp=nextn)
