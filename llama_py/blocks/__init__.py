"""Building blocks of layers: attention, experts, delta nets. Each declares weights and builds
nodes.

The constructor of a block declares its weights; a call builds nodes:

    self.norm = w.norm("ffn_norm", n_embd)
    cur = self.norm(g, cur, "ffn_norm", il)     # [n_embd, n_tokens] -> the same
"""
