"""The rate of deletes: how it finds a store's limit, and what it makes of answers."""

import heapq
import itertools
import statistics
from random import Random

import pytest

from delegation.storage.rate import AdaptiveRate, RatePolicy


def shared(processes: int, keys: int, limit: float, seed: int) -> tuple[float, float]:
    """(share of the limit used, share of keys refused) of processes that do not talk, on a virtual clock.

    The store is a token bucket of a second; answers take 14 to 26 ms. What was in the bucket at first is not counted.
    """
    draw = Random(seed)
    rates = [AdaptiveRate(RatePolicy(), now=0.0) for _ in range(processes)]
    left, under_way, planned = [keys] * processes, [0] * processes, [True] * processes
    tokens, at, now, refused, sent = limit, 0.0, 0.0, 0, 0
    order = itertools.count()
    events = [(draw.random() / 10, next(order), who, 0) for who in range(processes)]
    while events:
        now, _, who, answered = heapq.heappop(events)
        rate = rates[who]
        if answered:
            tokens, at = min(limit, tokens + (now - at) * limit), now
            taken = answered if answered <= tokens else 0
            tokens -= taken
            rate.answered(taken, now, throttled=not taken)
            refused += answered - taken
            left[who] += answered - taken
            under_way[who] -= 1
        else:
            planned[who] = False
        if planned[who] or left[who] <= 0 or under_way[who] >= 16:
            continue
        if rate.wait(now) <= 1e-9:
            batch = min(rate.batch(1_000), left[who])
            rate.sent(batch, now)
            left[who] -= batch
            sent += batch
            under_way[who] += 1
            heapq.heappush(events, (now + draw.uniform(0.014, 0.026), next(order), who, batch))
        planned[who] = True
        heapq.heappush(events, (now + rate.wait(now), next(order), who, 0))
    return (processes * keys - limit) / now / limit, refused / sent


@pytest.mark.parametrize("processes", [1, 4])
def test_processes_that_do_not_talk_use_nearly_all_a_store_takes(processes: int) -> None:
    runs = [shared(processes, 70_000, 3_500, seed) for seed in range(3)]
    assert statistics.median(used for used, _ in runs) >= 0.97
    assert max(refused for _, refused in runs) < 0.2


def test_every_refused_batch_takes_its_part_and_never_all() -> None:
    policy = RatePolicy()
    rate = AdaptiveRate(policy, now=0.0)
    for _ in range(10):
        rate.answered(0, 0.5, throttled=True)
    assert rate.keys_per_second == pytest.approx(policy.start * (1 - policy.decrease) ** 10)
    for turn in range(200):
        rate.answered(0, 0.5 + turn, throttled=True)
    assert rate.keys_per_second == policy.minimum


def test_the_rate_multiplies_until_the_store_says_slow_down() -> None:
    policy = RatePolicy(search=4.0)
    rate = AdaptiveRate(policy, now=0.0)
    rate.answered(250, 0.1, throttled=False)
    rate.answered(250, 0.2, throttled=False)
    assert rate.keys_per_second == pytest.approx(policy.start + 4 * 500)


def test_the_longer_no_batch_is_refused_the_more_is_added() -> None:
    policy = RatePolicy(start=1_000.0, decrease=0.5, add_per_second=10.0, grow=0.02, quiet=0.5)
    gained = []
    for quiet in (0.0, 0.5, 1.5):
        rate = AdaptiveRate(policy, now=0.0)
        rate.answered(0, 1.0, throttled=True)
        rate.answered(50, 1.0 + quiet, throttled=False)  # a tenth of a second's keys at 500 a second
        gained.append(rate.keys_per_second - 500)
    assert gained == pytest.approx([2.0, 4.0, 20.0])


def test_a_rate_that_is_not_used_up_does_not_grow() -> None:
    rate = AdaptiveRate(RatePolicy(start=1_000.0, credit=0.1), now=0.0)
    rate.sent(50, 1.0)
    rate.answered(50, 1.1, throttled=False)
    assert rate.keys_per_second == 1_000


def test_a_little_time_not_used_is_caught_up_with_but_not_more() -> None:
    rate = AdaptiveRate(RatePolicy(start=2_000.0, decrease=0.5, credit=0.1), now=0.0)
    rate.answered(0, 1.0, throttled=True)
    rate.sent(100, 60.0)
    assert rate.wait(60.0) == 0.0
    rate.sent(100, 60.0)
    assert rate.wait(60.0) == pytest.approx(0.1)


@pytest.mark.parametrize("numbers", [{"start": 0.0}, {"decrease": 1.0}, {"decrease": 0.0}, {"grow": -1.0}])
def test_a_rate_that_cannot_work_is_refused(numbers: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"positive|between"):
        RatePolicy(**numbers)


def test_batches_are_spaced_by_the_rate_and_hold_little_while_it_is_low() -> None:
    rate = AdaptiveRate(RatePolicy(start=1_000.0, batch_seconds=0.03), now=5.0)
    assert rate.batch(1_000) == 30
    assert rate.wait(5.0) == 0.0
    rate.sent(250, 5.0)
    rate.sent(250, 5.0)
    assert rate.wait(5.0) == pytest.approx(0.5)
    assert rate.wait(9.0) == 0.0
