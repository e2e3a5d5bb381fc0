"""How often the repeats of one key may run a failed task again."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from delegation.idempotency.store import ResubmitPolicy
from tests.kit.tasks.builders import NOW

seconds = st.integers(1, 3600).map(lambda count: timedelta(seconds=count))


@given(most=st.integers(0, 40), first=seconds, longest=seconds, resubmits=st.integers(0, 60))
def test_the_first_repeat_runs_at_once_and_the_others_after_growing_pauses(most, first, longest, resubmits):
    policy = ResubmitPolicy(most, first, longest)
    allowed, following = policy.allowed_at(resubmits, NOW), policy.allowed_at(resubmits + 1, NOW)
    assert (allowed is None) == (resubmits >= most)
    if allowed is not None:
        assert NOW <= allowed <= NOW + longest
        assert (allowed == NOW) == (resubmits == 0)
    if allowed is not None and following is not None:
        assert following >= allowed


def test_the_default_ends_within_the_lifetime_of_a_key() -> None:
    policy, now = ResubmitPolicy(), NOW
    for resubmits in range(policy.most):
        now = policy.allowed_at(resubmits, now) or now
    assert policy.allowed_at(policy.most, now) is None
    assert timedelta(minutes=4) < now - NOW < timedelta(minutes=10)
