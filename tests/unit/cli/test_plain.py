"""Texts of others on a terminal: neither control characters nor characters that turn what follows around."""

import pytest

from delegation.cli.screens import plain


@pytest.mark.parametrize(
    "text", ["a\x1b[2Jb", "a\x07b", "a\u202eb", "a\u2066\u2069b", "a\u200e\u200fb", "a\u061cb", "a\nb"]
)
def test_what_a_terminal_would_obey_is_a_blank(text):
    shown = plain(text)
    assert shown.isprintable()
    assert (shown[0], shown[-1]) == ("a", "b")


@pytest.mark.parametrize("text", ["orders", "bestellungen_ä", "注文", "الطلبات", "🙂 ok"])
def test_other_text_stays(text):
    assert plain(text) == text
