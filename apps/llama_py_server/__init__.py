"""llama-py-server: a model behind HTTP, as OpenAI, Anthropic and llama-server have it.

`command` reads options, loads the model and starts the engine (`llama_py.serving`); `app` names the
paths. A request passes these rooms, each of which imports only rooms above it in this list:

    wire/    reads its body, and has what is HTTP alone
    models/  has the model that it names
    schema/  makes prompts and a task of its JSON, and the engine's request of these
    stream/  makes a response of the engine's events, in the form that the client wants
    routes/  has a handler for each path
"""
