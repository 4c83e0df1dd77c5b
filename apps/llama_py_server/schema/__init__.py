"""Conversion of JSON requests of OpenAI, Anthropic and llama-server to prompts and tasks."""
