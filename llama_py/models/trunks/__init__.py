"""What several architectures share: their graphs, layers and rules."""
