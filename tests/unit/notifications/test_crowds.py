"""Receivers that hang, are slow or refuse, beside healthy ones: no healthy one waits for them."""

import pytest

from tests.unit.notifications.crowd import Behaves, Crowd

BURST = 1_500


def hung(_at: float) -> tuple[float, int]:
    return 60.0, 0


def slow(_at: float) -> tuple[float, int]:
    return 9.0, 200


def dragging(_at: float) -> tuple[float, int]:
    return 1.0, 202


def refusing(_at: float) -> tuple[float, int]:
    return 0.05, 500


def healthy(_at: float) -> tuple[float, int]:
    return 0.05, 200


def until(change: float, before: Behaves, after: Behaves) -> Behaves:
    return lambda at: before(at) if at < change else after(at)


BAD = {"hung-a": hung, "hung-b": hung, "slow-a": slow, "slow-b": slow, "dragging": dragging, "refusing": refusing}
GOOD = {"good-a": healthy, "good-b": healthy}


def crowded(minutes: int, **receivers: Behaves) -> Crowd:
    """Each bad receiver is owed a burst at first, and everyone one notification every ten seconds from then on."""
    crowd = Crowd({**{name.replace("_", "-"): one for name, one in receivers.items()}, **BAD, **GOOD})

    def ends() -> None:
        for _ in range(BURST):
            for name in crowd.receivers:
                if name not in GOOD:
                    crowd.end(name)
        while True:
            for name in crowd.receivers:
                crowd.end(name)
            crowd.time.sleep(10)

    crowd.time.process(ends)
    crowd.run(minutes * 60)
    return crowd


def p99(delays: list[float]) -> float:
    return sorted(delays)[int(len(delays) * 0.99)]


def test_a_healthy_receiver_waits_for_no_other() -> None:
    crowd = crowded(60)
    for name in GOOD:
        assert len(crowd.delays[name]) >= 355
        assert p99(crowd.delays[name]) <= 60
    # A hung one is tried a few times in the hour, not by each of its notifications.
    assert crowd.calls["hung-a"] <= 40
    assert crowd.calls["refusing"] <= 40
    assert len(crowd.delays["slow-a"]) >= 300
    assert all(depth <= 1_000 for pool, depth in crowd.deepest.items() if pool != "callbacks")
    assert len(crowd.queues["callbacks"]) <= 50  # type: ignore[index]


@pytest.mark.long
def test_a_receiver_that_recovers_gets_what_it_was_owed() -> None:
    crowd = crowded(75, mended=until(1_200, hung, healthy))
    assert len(crowd.left("mended")) <= 30
    assert p99(crowd.delays["good-a"]) <= 60


@pytest.mark.long
def test_a_receiver_that_comes_and_goes_delays_no_other() -> None:
    """It answers for five minutes and hangs for five."""
    crowd = crowded(60, flapping=lambda at: healthy(at) if int(at) % 600 < 300 else hung(at))
    assert p99(crowd.delays["good-a"]) <= 60
