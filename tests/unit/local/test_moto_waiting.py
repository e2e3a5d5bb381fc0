"""moto waits until a time in UTC, in every time zone of the machine."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from moto.stepfunctions.parser.asl.component.state.wait.wait_function.timestamp import Timestamp

from infra.local.aws import server

DUE = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.fixture(params=["UTC", "EST+5", "IST-5:30"])
def zone(request, monkeypatch):
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def corrected():
    undo = server.correct_wait_times()
    yield
    undo()


@pytest.mark.parametrize(("left", "waits"), [(0.0, 0), (0.02, 1), (1.0, 1), (59.5, 60)])
def test_the_wait_lasts_until_the_timestamp_and_never_less(zone, corrected, left, waits):
    moment = Timestamp._from_timestamp_string(timestamp="2026-11-21T12:00:00.000000Z")
    # moto compares with local time.
    now = (DUE - timedelta(seconds=left)).astimezone().replace(tzinfo=None)
    assert int((moment - now).total_seconds()) == waits


def test_text_that_is_not_a_timestamp_remains_none(corrected):
    assert Timestamp._from_timestamp_string(timestamp="tomorrow") is None


def test_it_can_be_undone():
    before = vars(Timestamp)["_from_timestamp_string"]
    server.correct_wait_times()()
    assert vars(Timestamp)["_from_timestamp_string"] is before
