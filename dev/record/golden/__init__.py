"""Results of tiny models in the real llama.cpp, recorded for comparison in tests."""
