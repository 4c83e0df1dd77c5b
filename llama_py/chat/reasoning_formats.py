"""The ways in which thoughts are told from what is said, by llama-server's names for them."""

REASONING_FORMATS = ("none", "auto", "deepseek", "deepseek-legacy")
