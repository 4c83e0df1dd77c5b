"""Requests of clients: lists of prompts and lengths, the same for every server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from dev.compare.load.client import Answer, ask

Ask = tuple[list[int], int]  # a prompt, and how many tokens follow

N_IDS = 500  # ids of prompts are below it, and from FIRST_ID on: plain pieces in every vocabulary
FIRST_ID = 300


@dataclass(frozen=True, slots=True)
class Mixed:
    """Parallel clients, each with different requests: short and long prompts in random order."""

    n_clients: int
    n_each: int
    lengths: Sequence[int] = (16, 64, 256, 700)
    answers: Sequence[int] = (16, 32, 64)

    @property
    def name(self) -> str:
        return f"{self.n_clients} clients"

    async def run(self, client: httpx.AsyncClient, seed: int) -> list[Answer]:
        draw = random.Random(seed)
        plan = [[self._ask(draw) for _ in range(self.n_each)] for _ in range(self.n_clients)]
        found = await asyncio.gather(*(_in_turn(client, one) for one in plan))
        return [answer for answers in found for answer in answers]

    def _ask(self, draw: random.Random) -> Ask:
        return ids(draw, draw.choice(self.lengths)), draw.choice(self.answers)


@dataclass(frozen=True, slots=True)
class Agents:
    """Agents that take turns: all share long instructions, and each one has a conversation
    that grows with every turn. The first turn of each agent is not counted."""

    n_agents: int = 2
    n_turns: int = 10
    n_shared: int = 4000
    n_turn: int = 40
    n_answer: int = 24

    @property
    def name(self) -> str:
        return f"{self.n_agents} agents, {self.n_shared} shared"

    async def run(self, client: httpx.AsyncClient, seed: int) -> list[Answer]:
        draw = random.Random(seed)
        shared = ids(draw, self.n_shared)
        stories = [[*shared, *ids(draw, self.n_turn)] for _ in range(self.n_agents)]
        found: list[Answer] = []
        for turn in range(self.n_turns):
            for story in stories:
                answer = await ask(client, story, self.n_answer)
                found += [answer] if turn else []
                story += [*answer.ids, *ids(draw, self.n_turn)]
        return found


def ids(draw: random.Random, n: int) -> list[int]:
    return [draw.randrange(FIRST_ID, N_IDS) for _ in range(n)]


async def _in_turn(client: httpx.AsyncClient, plan: Sequence[Ask]) -> list[Answer]:
    return [await ask(client, prompt, n) for prompt, n in plan]
