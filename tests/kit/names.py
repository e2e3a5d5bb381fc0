"""Names that are spelled otherwise in a path or a query, and names that are what others of them encode or decode to."""

from itertools import product
from typing import Final

from delegation.identifiers import NAMESPACE_SEPARATOR
from tests.effort import THOROUGH

_PARTS: Final = ("%", "%25", "+", ";", "/", " ", "é", "%1F", "%2F", "%41", "?", "#", "&x=", "😀")
_ALONE: Final = (
    "%",
    "%25",
    "%2525",
    "+",
    " ",
    ";",
    "?",
    "#",
    "&",
    "=",
    ":",
    "@",
    "~",
    "a.b",
    "...",
    '"',
    "%C3%A9",
    "%zz",
)
HOSTILE: Final = (*_ALONE, *(f"m{one}{other}n" for one, other in product(("", *_PARTS), _PARTS)))
"""At least 200 names, each of which a catalog may have."""
SAMPLE: Final = HOSTILE if THOROUGH else HOSTILE[::5]
"""All of them in a long run; in a short one every fifth, and so each part before and after another."""
NO_NAMES: Final = ("", ".", "..", "m/../n", NAMESPACE_SEPARATOR, f"m{NAMESPACE_SEPARATOR}n", "m\ud800n")
"""What no request can name."""
