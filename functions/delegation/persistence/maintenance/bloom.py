"""A Bloom filter over object keys: what was added is always found; what was not is rarely taken for it."""

import hashlib
import math
from typing import Self

from delegation.persistence.backends.base import ObjectKey
from delegation.persistence.errors import CorruptObject


class BloomFilter:
    """Filter of `size` bits and `hashes` bits set per key; `salt` (16 bytes) makes other keys collide in every run."""

    def __init__(self, size: int, hashes: int, salt: bytes, bits: bytes | None = None, count: int = 0) -> None:
        self.size = size
        self.hashes = hashes
        self.salt = salt
        self.bits = bytearray(bits) if bits is not None else bytearray(-(-size // 8))
        if len(self.bits) != -(-size // 8):
            raise CorruptObject("a stored filter has not the size it states")
        self.count = count

    @classmethod
    def for_keys(cls, expected: int, false_positive_rate: float, salt: bytes) -> Self:
        """The smallest filter that keeps the rate when `expected` keys are added."""
        size = math.ceil(-max(expected, 1) * math.log(false_positive_rate) / math.log(2) ** 2)
        return cls(size, max(1, round(-math.log2(false_positive_rate))), salt)

    def add(self, key: ObjectKey) -> None:
        """Add a key; `count` counts those that were not there before (about)."""
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
        """The rate as it is now, measured on the bits: the chance that a key not added finds all its bits set."""
        filled: float = int.from_bytes(self.bits).bit_count() / self.size
        return filled**self.hashes

    def _positions(self, key: ObjectKey) -> list[int]:
        name = f"{key.id}/{key.type}/{len(key.realm)}/{key.realm}/{key.catalog}".encode()
        digest = int.from_bytes(hashlib.blake2b(name, digest_size=16, salt=self.salt).digest())
        first, step = digest >> 64, digest & (1 << 64) - 1 | 1
        return [(first + number * step) % self.size for number in range(self.hashes)]
