"""Results of the newest published llama.cpp, for models that need it."""
