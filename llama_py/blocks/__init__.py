"""What layers are made of: attention, experts, delta nets. Each has weights and builds its nodes.

A block declares its weights when it is made and builds nodes when it is called:

    self.norm = w.norm("ffn_norm", n_embd)
    cur = self.norm(g, cur, "ffn_norm", il)     # [n_embd, n_tokens] -> the same
"""
