"""Graph inputs: leafs whose values are set before each run, and whether a built graph still fits.

Each input knows its tensors, fills them from a ubatch (`set_input`), and says whether the tensors
it made would be the same for other parameters (`can_reuse`); if so it is bound to their memory
context.
"""
