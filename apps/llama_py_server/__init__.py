"""llama-py-server: a model behind HTTP, as OpenAI, Anthropic and llama-server have it.

`command` reads options, loads the model and starts the engine (`llama_py.serving`); `app` names the
paths. A request's way: `body` reads it; `from_anthropic` and `from_responses` make those of one
API of it, `chat` a prompt; `task` reads its fields, `work` has it answered, `results` write what
comes as the client wants it.
"""
