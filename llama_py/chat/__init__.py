"""Chat templates: convert messages to the text a model was trained to continue, like
llama-server.

template.py   `ChatTemplate`: a Jinja program from a file, and the conversion of messages for it
sandbox.py    Jinja's sandbox with the semantics of llama.cpp's engine
caps.py       a template's capabilities, found by rendering
messages.py   messages and tools in the form of the OpenAI API, whole
families.py   special requirements of some templates
named.py      the templates that llama.cpp knows by name
ends.py       end of a response, if only the template defines it
tools.py      requests and parsing of responses with tools, reasoning or JSON
formats/      formats of such responses; peg/: expressions that define them
stream.py     parsing of a streamed response; answer.py: the parsed message
thinking.py   start and end of reasoning in a response
"""

from llama_py.chat.template import ChatTemplate

__all__ = ["ChatTemplate"]
