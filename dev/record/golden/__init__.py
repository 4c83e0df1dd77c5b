"""What tiny models compute in the real llama.cpp: recorded once, compared with ours in tests."""
