"""Two callers with keys, another writer, renames, drops and lost answers: no double effect and no wrong answer.

`make test THOROUGH=1` plays 500 stories, `make gateway-interleavings` 10,000.
"""

from collections.abc import Callable

import pytest

from delegation.gateway.keys import calls, commits, reading, rules
from delegation.gateway.keys.reading import NOT_APPLIED, Applied, NotApplied
from tests.effort import THOROUGH
from tests.kit.explorer import WrongOutcome
from tests.unit.gateway.keys.interleaved import EXPLORER


@pytest.mark.usefixtures("quiet")
def test_no_interleaving_has_a_double_effect_or_a_wrong_answer() -> None:
    heard = EXPLORER.total(range(500 if THOROUGH else 16))
    done = {line.rpartition(" ")[0] for line in heard if line.rpartition(" ")[2] in {"200", "204"}}
    assert len(done) > (16 if THOROUGH else 12)  # a long run has every kind of mutation
    ended = {line.rpartition(" ")[2] for line in heard}
    assert {"200", "204", "404", "409", "504"} <= ended


def takes_absence_for_proof(patch: pytest.MonkeyPatch) -> None:
    verify = commits.verify_commit
    patch.setattr(
        commits,
        "verify_commit",
        lambda updates, needs, state: NOT_APPLIED if state is None else verify(updates, needs, state),
    )


def takes_what_is_not_shown_for_proof(patch: pytest.MonkeyPatch) -> None:
    verified = calls.KeyedCall._verified
    patch.setattr(
        calls.KeyedCall,
        "_verified",
        lambda call, attempt: found if isinstance(found := verified(call, attempt), Applied) else NotApplied(),
    )


def believes_every_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(calls, "is_genuine", lambda _operation, _answer: True)


def compares_no_numbers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commits, "_is_below", lambda *_: True)


def takes_drops_for_done(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "DROP", reading.VerificationRule(lambda _evidence: Applied(reading.DONE)))


def believes_first_refusals(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(calls.KeyedCall, "_despite_refusal", lambda _call, made, _attempt: made)


# The seed to begin with: when these were chosen, it noticed the fault.
@pytest.mark.parametrize(
    ("break_", "first"),
    [
        (takes_absence_for_proof, 7),
        (takes_what_is_not_shown_for_proof, 2),
        (believes_every_answer, 2),
        (compares_no_numbers, 1),
        (takes_drops_for_done, 3),
        (believes_first_refusals, 13),
    ],
)
@pytest.mark.usefixtures("quiet")
def test_the_stories_notice_a_gateway_that_guesses(
    break_: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_(monkeypatch)
    with pytest.raises(WrongOutcome):
        EXPLORER.total(range(first, 400))
