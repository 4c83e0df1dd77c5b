"""The recipe of the bundled demonstration model; not part of the installed package."""

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ImportError("the recipe needs torch: pip install -e '.[train]'")
