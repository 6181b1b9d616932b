"""HTTP connections with deadlines: headers must come soon and be small, and there are only so many connections."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_BYTES = 16 << 10
HEADER_SECONDS = 10.0
IDLE_SECONDS = 15.0  # between two requests of one connection
MOST_CONNECTIONS = 1000
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class TooLarge(Exception):
    """Headers beyond the limit."""


class DeadlineProtocol(HttpToolsProtocol):
    """uvicorn's, which waits for headers for ever and takes any number of them."""

    header_bytes = 0
    late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        self.expect_headers(HEADER_SECONDS)

    def expect_headers(self, seconds: float) -> None:
        self.stop_waiting()
        self.header_bytes = 0
        self.late = self.loop.call_later(seconds, self.transport.abort)

    def stop_waiting(self) -> None:
        if self.late is not None:
            self.late.cancel()
            self.late = None

    def count(self, size: int) -> None:
        self.header_bytes += size
        if self.header_bytes > HEADER_BYTES:
            raise TooLarge

    def on_url(self, url: bytes) -> None:
        self.count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.stop_waiting()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self.expect_headers(IDLE_SECONDS)

    def send_400_response(self, msg: str) -> None:
        """What a callback raises reaches this as any other fault of the parser's."""
        if self.header_bytes <= HEADER_BYTES:
            super().send_400_response(msg)
            return
        self.transport.write(TOO_LARGE)
        self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.stop_waiting()
        super().connection_lost(error)
