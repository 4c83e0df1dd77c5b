"""Graph inputs: leafs with values set before each run, and checks whether a built graph still fits.

Each input has its tensors and fills them from a ubatch (`set_input`). `can_reuse` returns True if
its tensors would be the same for other parameters, and binds the input to their memory
context.
"""
