"""How a pasted text is read: which commands it has, those within others first."""

import pytest

from tests.deployment.shell import simple_commands


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ('a "$(b "$1")" c', [["b", "value"], ["a", "value", "c"]]),
        ("""f() { a '$1 | x' | b; }""", [["a", "$1 | x"], ["b"]]),
        ('N=$(a --b "${3:-$S}-c")', [["a", "--b", "value-c"]]),
        ("a \\\n  b # not c\nd", [["a", "b"], ["d"]]),
        ("a 2>/dev/null | b -m1 . || echo no >&2", [["a"], ["b", "-m1", "."], ["echo", "no"]]),
        ("until a; do b; done", [["a"], ["b"]]),
        ("a=1 b c=2", [["b", "c=2"]]),
    ],
)
def test_the_commands_of_a_text(text: str, commands: list[list[str]]) -> None:
    assert list(simple_commands(text)) == commands


@pytest.mark.parametrize("text", ["a 'b", 'a "b', 'a "$(b "c)"'])
def test_a_quote_that_nothing_closes_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="nothing closes"):
        list(simple_commands(text))
