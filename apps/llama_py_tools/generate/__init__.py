"""llama-py-cli: completions, conversations, images, diffusion."""
