"""Context attributes that graphs depend on."""

from __future__ import annotations

from typing import Protocol


class CountsSettings(Protocol):
    n_settings: int


class Setting:
    """An attribute that graphs depend on: setting it starts another epoch.

    It has no `__get__`, so reading it is as fast as reading any other attribute.
    """

    def __set_name__(self, owner: type[CountsSettings], name: str) -> None:
        self.name = name

    def __set__(self, ctx: CountsSettings, value: object) -> None:
        ctx.__dict__[self.name] = value
        ctx.n_settings += 1
