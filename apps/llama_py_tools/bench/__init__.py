"""llama-py-bench: speed of a model, bandwidth of the machine, predictions for links."""
