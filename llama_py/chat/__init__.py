"""Chat templates: messages to the text a model was trained to continue, as llama-server makes it.

template.py   `ChatTemplate`: a Jinja program out of a file, and what is done to messages for it
sandbox.py    Jinja's sandbox with the meanings that llama.cpp's engine has
caps.py       what a template can take, found by trying
messages.py   messages and tools in the form of the OpenAI API, whole
families.py   what some templates want of them besides
named.py      the templates that llama.cpp knows by name
ends.py       where an answer ends, if the template alone says so
tools.py      how an answer with tools, thoughts or JSON is asked for and read
formats/      the ways in which models write such answers; peg/: what they are written in
stream.py     an answer as it comes; answer.py: the message that it is
thinking.py   where thoughts begin and end in an answer
"""

from llama_py.chat.template import ChatTemplate

__all__ = ["ChatTemplate"]
