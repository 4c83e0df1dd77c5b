"""A conversation in a terminal, or line by line from stdin.

talk.py      `Talk`: what was typed is a command or a message, answers are shown as they come
lines.py     what is one message: several lines, and where they come from
terminal.py  lines from a terminal: history, completion (prompt_toolkit)
history.py   where typed lines are kept between runs
commands.py  `/help`, `/regen`, ...: one function each
settings.py  `/set`: sampling options by their names
saved.py     `/save` and `/load`: conversations as JSON
"""

from llama_py_tools.generate.chat.talk import Talk

__all__ = ["Talk"]
