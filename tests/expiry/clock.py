"""The time at which the questions are asked."""

from typing import Final

DAY: Final = 24 * 60 * 60 * 1000
NOW: Final = 1_700_000_000_000
