"""The adaptive rate of deletes: how it finds a store's limit and reacts to answers."""

import heapq
import itertools
import statistics
from random import Random

import pytest

from delegation.storage.deleter import AdaptiveRate, RatePolicy


def shared(processes: int, keys: int, limit: float, seed: int) -> tuple[float, float]:
    """Simulate uncoordinated processes on a virtual clock; return the shares of the limit used and of keys refused.

    The store is a token bucket of one second, whose first content is not counted; answers need 14 to 26 ms.
    """
    draw = Random(seed)
    rates = [AdaptiveRate(RatePolicy(), now=0.0) for _ in range(processes)]
    left, in_flight, planned = [keys] * processes, [0] * processes, [True] * processes
    tokens, at, now, refused, sent = limit, 0.0, 0.0, 0, 0
    order = itertools.count()
    events = [(draw.random() / 10, next(order), process, 0) for process in range(processes)]
    while events:
        now, _, process, answered = heapq.heappop(events)
        rate = rates[process]
        if answered:
            tokens, at = min(limit, tokens + (now - at) * limit), now
            accepted = answered if answered <= tokens else 0
            tokens -= accepted
            rate.answered(accepted, now, throttled=not accepted)
            refused += answered - accepted
            left[process] += answered - accepted
            in_flight[process] -= 1
        else:
            planned[process] = False
        if planned[process] or left[process] <= 0 or in_flight[process] >= 16:
            continue
        if rate.wait(now) <= 1e-9:
            batch = min(rate.batch(1_000), left[process])
            rate.sent(batch, now)
            left[process] -= batch
            sent += batch
            in_flight[process] += 1
            heapq.heappush(events, (now + draw.uniform(0.014, 0.026), next(order), process, batch))
        planned[process] = True
        heapq.heappush(events, (now + rate.wait(now), next(order), process, 0))
    return (processes * keys - limit) / now / limit, refused / sent


@pytest.mark.parametrize("processes", [1, 4])
def test_uncoordinated_processes_use_nearly_all_of_the_limit(processes: int) -> None:
    runs = [shared(processes, 70_000, 3_500, seed) for seed in range(3)]
    assert statistics.median(used for used, _ in runs) >= 0.97
    assert max(refused for _, refused in runs) < 0.2


def test_every_refused_batch_lowers_the_rate_but_not_below_the_minimum() -> None:
    policy = RatePolicy()
    rate = AdaptiveRate(policy, now=0.0)
    for _ in range(10):
        rate.answered(0, 0.5, throttled=True)
    assert rate.keys_per_second == pytest.approx(policy.start * (1 - policy.decrease) ** 10)
    for turn in range(200):
        rate.answered(0, 0.5 + turn, throttled=True)
    assert rate.keys_per_second == policy.minimum


def test_the_rate_multiplies_until_the_first_slow_down() -> None:
    policy = RatePolicy(search=4.0)
    rate = AdaptiveRate(policy, now=0.0)
    rate.answered(250, 0.1, throttled=False)
    rate.answered(250, 0.2, throttled=False)
    assert rate.keys_per_second == pytest.approx(policy.start + 4 * 500)


def test_the_increase_grows_with_the_time_since_the_last_refusal() -> None:
    policy = RatePolicy(start=1_000.0, decrease=0.5, add_per_second=10.0, grow=0.02, quiet=0.5)
    gained = []
    for quiet in (0.0, 0.5, 1.5):
        rate = AdaptiveRate(policy, now=0.0)
        rate.answered(0, 1.0, throttled=True)
        rate.answered(50, 1.0 + quiet, throttled=False)  # a tenth of a second's keys at 500 a second
        gained.append(rate.keys_per_second - 500)
    assert gained == pytest.approx([2.0, 4.0, 20.0])


def test_a_rate_that_is_not_used_fully_does_not_grow() -> None:
    rate = AdaptiveRate(RatePolicy(start=1_000.0, credit=0.1), now=0.0)
    rate.sent(50, 1.0)
    rate.answered(50, 1.1, throttled=False)
    assert rate.keys_per_second == 1_000


def test_unused_time_is_made_up_for_up_to_the_credit() -> None:
    rate = AdaptiveRate(RatePolicy(start=2_000.0, decrease=0.5, credit=0.1), now=0.0)
    rate.answered(0, 1.0, throttled=True)
    rate.sent(100, 60.0)
    assert rate.wait(60.0) == 0.0
    rate.sent(100, 60.0)
    assert rate.wait(60.0) == pytest.approx(0.1)


@pytest.mark.parametrize("numbers", [{"start": 0.0}, {"decrease": 1.0}, {"decrease": 0.0}, {"grow": -1.0}])
def test_invalid_parameters_are_refused(numbers: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"positive|between"):
        RatePolicy(**numbers)


def test_batches_are_spaced_by_the_rate_and_small_while_it_is_low() -> None:
    rate = AdaptiveRate(RatePolicy(start=1_000.0, batch_seconds=0.03), now=5.0)
    assert rate.batch(1_000) == 30
    assert rate.wait(5.0) == 0.0
    rate.sent(250, 5.0)
    rate.sent(250, 5.0)
    assert rate.wait(5.0) == pytest.approx(0.5)
    assert rate.wait(9.0) == 0.0
