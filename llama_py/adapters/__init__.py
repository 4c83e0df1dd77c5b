"""Changes to a model's weights and outputs: LoRA adapters and control vectors."""
