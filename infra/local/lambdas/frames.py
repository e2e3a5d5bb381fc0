"""How the stack and its Lambda workers talk: frames (four bytes of big-endian length, the bytes) over a socket pair."""

import socket
import struct
import time

_LENGTH = struct.Struct(">I")


def send(channel: socket.socket, *frames: bytes) -> None:
    """Send frames; raises `OSError` if the other end is gone."""
    channel.sendall(b"".join(_LENGTH.pack(len(frame)) + frame for frame in frames))


def receive(channel: socket.socket, *, deadline: float | None = None) -> bytes:
    """The next frame; raises `EOFError` if the other end is gone, `TimeoutError` at `deadline` (`time.monotonic`)."""
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
