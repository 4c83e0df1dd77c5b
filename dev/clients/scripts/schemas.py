"""The schema of `feature.py` as a class of Pydantic."""

from typing import Literal

from pydantic import BaseModel


class Weather(BaseModel):
    place: Literal["here", "there"]
    sunny: bool
