"""Ways of separating reasoning from content, by llama-server's names."""

REASONING_FORMATS = ("none", "auto", "deepseek", "deepseek-legacy")
