"""A Bloom filter over object keys: an added key is always found, another one rarely."""

import hashlib
import math
from typing import Self

from delegation.persistence.backends.base import ObjectKey
from delegation.persistence.errors import CorruptObject


class BloomFilter:
    """A filter of `size` bits with `hashes` bits set per key; with another `salt` (16 bytes) other keys collide."""

    def __init__(self, size: int, hashes: int, salt: bytes, bits: bytes | None = None, count: int = 0) -> None:
        self.size = size
        self.hashes = hashes
        self.salt = salt
        self.bits = bytearray(bits) if bits is not None else bytearray(-(-size // 8))
        if len(self.bits) != -(-size // 8):
            raise CorruptObject(f"a stored Bloom filter has {len(self.bits)} bytes, not {-(-size // 8)}")
        self.count = count

    @classmethod
    def for_keys(cls, expected: int, false_positive_rate: float, salt: bytes) -> Self:
        """Return the smallest filter that keeps the rate when `expected` keys are added."""
        size = math.ceil(-max(expected, 1) * math.log(false_positive_rate) / math.log(2) ** 2)
        return cls(size, max(1, round(-math.log2(false_positive_rate))), salt)

    def add(self, key: ObjectKey) -> None:
        """Add a key; `count` is about the number of different keys."""
        new = False
        for position in self._positions(key):
            byte, bit = position >> 3, 1 << (position & 7)
            if not self.bits[byte] & bit:
                self.bits[byte] |= bit
                new = True
        self.count += new

    def __contains__(self, key: ObjectKey) -> bool:
        return all(self.bits[position >> 3] & 1 << (position & 7) for position in self._positions(key))

    def false_positive_rate(self) -> float:
        """Return the present rate, measured on the bits: the chance that all bits of a key not added are set."""
        filled: float = int.from_bytes(self.bits).bit_count() / self.size
        return filled**self.hashes

    def _positions(self, key: ObjectKey) -> list[int]:
        name = f"{key.id}/{key.type}/{len(key.realm)}/{key.realm}/{key.catalog}".encode()
        digest = int.from_bytes(hashlib.blake2b(name, digest_size=16, salt=self.salt).digest())
        first, step = digest >> 64, digest & (1 << 64) - 1 | 1
        return [(first + number * step) % self.size for number in range(self.hashes)]
