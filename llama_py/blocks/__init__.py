"""Building blocks of layers: attention, experts, delta nets. Each declares weights and builds
nodes.

A block declares its weights when it is made and builds nodes when it is called:

    self.norm = w.norm("ffn_norm", n_embd)
    cur = self.norm(g, cur, "ffn_norm", il)     # [n_embd, n_tokens] -> the same
"""
