"""A fetched value is never used longer than the policy allows, and its source is not asked more often."""

from datetime import datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from delegation.edge.errors import RevocationListUnavailable
from delegation.edge.trust.cache import CachedSource, CachePolicy
from tests.unit.edge.trust.pki import NOW

POLICY = CachePolicy(fresh=timedelta(minutes=5), stale=timedelta(minutes=20), pause=timedelta(seconds=30))


class Source:
    """Returns the time of the request as value; counts requests, and a manual clock."""

    def __init__(self) -> None:
        self.now = NOW
        self.is_up = True
        self.requests: list[datetime] = []

    def fetch(self, former: datetime | None) -> datetime:
        assert former is None or former < self.now
        self.requests.append(self.now)
        if not self.is_up:
            raise RevocationListUnavailable("down")
        return self.now


@given(
    st.lists(st.tuples(st.integers(min_value=1, max_value=600), st.booleans(), st.booleans()), min_size=1, max_size=40)
)
def test_a_value_is_never_older_than_allowed(steps: list[tuple[int, bool, bool]]) -> None:
    source = Source()
    cache = CachedSource(
        source.fetch, what="the value", unavailable=RevocationListUnavailable, clock=lambda: source.now, policy=POLICY
    )
    limited_from: int | None = None
    for seconds, is_up, suffices in steps:
        source.now += timedelta(seconds=seconds)
        source.is_up = is_up
        try:
            age = source.now - cache.get(lambda _value, suffices=suffices: suffices)
        except RevocationListUnavailable:
            assert not is_up or source.now < source.requests[-1] + POLICY.pause, "an available source was not asked"
        else:
            assert age < POLICY.fresh + POLICY.stale
            assert age < POLICY.fresh or not is_up or source.now < source.requests[-1] + POLICY.pause
            limited_from = len(source.requests) - 1 if limited_from is None else limited_from
    # Without any value every request must try; from the first value on the source is spared.
    spared = source.requests[limited_from:] if limited_from is not None else []
    assert all(later - earlier >= POLICY.pause for earlier, later in pairwise(spared))
