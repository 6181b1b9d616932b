"""From the threads of the engines into the event loop: one wake-up for what a step has made, not one for each token.

What ends an answer is handed over at once. Everything else is gathered for a moment, so that a text that is written faster than
anybody reads does not cost a write for each of its tokens.
"""

import asyncio
import threading
from typing import Any, Protocol

GATHER_SECONDS = (
    0.001  # for each answer that is under way: one gets its tokens as they come, many get them a few at a time
)
MOST_SECONDS = 0.06


class Receiver(Protocol):
    def receive(self, events: list[tuple[int, Any]]) -> None: ...


class Mailbox:
    """put and wake are called in other threads; receivers are called in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.loop, self.lock = loop, threading.Lock()
        self.waiting: dict[Receiver, list[tuple[int, Any]]] = {}
        self.urgent: list[Receiver] = []
        self.emptied = 0.0  # when everything was handed over last
        self.timer: asyncio.TimerHandle | None = None

    def put(self, receiver: Receiver, number: int, event: Any, urgent: bool) -> None:
        with self.lock:
            self.waiting.setdefault(receiver, []).append((number, event))
            if urgent:
                self.urgent.append(receiver)

    def wake(self) -> None:
        with self.lock:
            needed = self.urgent or (self.waiting and self.timer is None)
        if needed and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.hand_over)

    def hand_over(self) -> None:
        with self.lock:
            left = self.emptied + min(GATHER_SECONDS * len(self.waiting), MOST_SECONDS) - self.loop.time()
            if left <= 0:
                found, self.waiting, self.emptied = self.waiting, {}, self.loop.time()
            else:
                found = {each: self.waiting.pop(each) for each in dict.fromkeys(self.urgent) if each in self.waiting}
            self.urgent = []
            if self.waiting and self.timer is None:
                self.timer = self.loop.call_later(left, self.hand_over_later)
        for receiver, events in found.items():
            receiver.receive(events)

    def hand_over_later(self) -> None:
        with self.lock:
            self.timer, self.emptied = None, 0.0
        self.hand_over()
