"""Numbers of variable length in an index (`index.format`): LEB128, seven bits a byte, the lowest first."""

from typing import Final

from polaris_persistence.errors import CorruptIndexError

_LONGEST_VARINT: Final = 9


def common_prefix(left: bytes, right: bytes) -> int:
    shortest = min(len(left), len(right))
    different = int.from_bytes(left[:shortest]) ^ int.from_bytes(right[:shortest])
    return shortest - (different.bit_length() + 7) // 8


def varint(number: int) -> bytes:
    """Return the LEB128 form of a number that is not negative."""
    if number < 0x80:
        return bytes((number,))
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Return a number and the position after it. Raises CorruptIndexError, also for more than 63 bits."""
    number = 0
    for length in range(_LONGEST_VARINT):
        if position + length >= end:
            break
        byte = data[position + length]
        number |= (byte & 0x7F) << (7 * length)
        if byte < 0x80:
            return number, position + length + 1
    raise CorruptIndexError(position, "a number does not end")


def check_count(count: int, position: int, end: int, least: int) -> None:
    """Refuse a count that the remaining bytes cannot hold, before anything is allocated for it."""
    if count * least > end - position:
        raise CorruptIndexError(position, f"{count} items stated, but {end - position} bytes are left")
