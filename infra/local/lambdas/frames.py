"""Frames between the stack and its Lambda workers over a socket pair: a four-byte big-endian length, then the bytes."""

import socket
import struct
import time

_LENGTH = struct.Struct(">I")


def send(channel: socket.socket, *frames: bytes) -> None:
    """Send frames; raises `OSError` if the other end is closed."""
    channel.sendall(b"".join(_LENGTH.pack(len(frame)) + frame for frame in frames))


def receive(channel: socket.socket, *, deadline: float | None = None) -> bytes:
    """Return the next frame; raise `EOFError` if the other end is closed, `TimeoutError` at `deadline` (monotonic)."""
    (length,) = _LENGTH.unpack(_exactly(channel, _LENGTH.size, deadline))
    return _exactly(channel, length, deadline)


def _exactly(channel: socket.socket, size: int, deadline: float | None) -> bytes:
    received = bytearray()
    while len(received) < size:
        if deadline is not None:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            channel.settimeout(remaining)
        try:
            part = channel.recv(min(size - len(received), 1 << 20))
        except ConnectionError as exc:
            raise EOFError from exc
        if not part:
            raise EOFError
        received += part
    return bytes(received)
