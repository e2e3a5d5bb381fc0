"""Five alarms are tripped on a local stack, and their pages followed (`make alarms-drill` prints the table)."""

import shutil
from dataclasses import replace

import pytest

from tests.alarms.__main__ import Followed, main
from tests.alarms.aws_command import parsed

WELL = Followed("Paused", before=False, raised=True, commands=6, failed=(), afterwards=False)


@pytest.mark.long
@pytest.mark.stack
def test_five_alarms_are_tripped_and_their_pages_followed() -> None:
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed; the alarms come from the synthesized template")
    assert main() == 0


@pytest.mark.parametrize(
    "changed", [{"before": True}, {"raised": False}, {"failed": ("exit 1",)}, {"afterwards": True}, {"commands": 0}]
)
def test_an_alarm_that_is_not_raised_or_a_page_that_fails_is_found(changed: dict[str, object]) -> None:
    assert WELL.is_well
    assert not replace(WELL, **changed).is_well  # type: ignore[arg-type]


def test_options_are_read_as_the_aws_cli_does() -> None:
    words = ["--queue-url", "http://q", "--max-number-of-messages", "10", "--enabled", "--names", "a", "b"]
    assert parsed(words) == {"queue-url": "http://q", "max-number-of-messages": "10", "enabled": True, "names": "a b"}
