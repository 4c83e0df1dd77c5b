"""From the JSON of a request to prompts and a task, of OpenAI, Anthropic and llama-server."""
