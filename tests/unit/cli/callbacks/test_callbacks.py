"""`delegation callbacks list` and `resend`, over the stores in memory."""

import json

import pytest

from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life import notifications as owing
from delegation.tasks.life.notifications import NotificationPolicy
from delegation.tasks.stores.base import Advance, Create
from delegation.tasks.stores.memory import MemoryNotificationStore, MemoryTaskStore
from tests.kit.tasks.builders import HOUR, NOW, failed, submitted

WHY = "CALLBACK_NOT_ACCEPTED: its receiver answered 500; it must answer 2xx"


@pytest.fixture
def store(monkeypatch):
    tasks = MemoryTaskStore()
    monkeypatch.setattr("delegation.cli.callbacks.store_of", lambda *_: MemoryNotificationStore(tasks))
    return tasks


def dead(tasks, **fields):
    """A task with a dead letter and an event that is still tried."""
    first = tasks.apply(Create(submitted(notify=("event", "callback:catalog"), **fields)))
    tasks.apply(Advance(first, failed(first)))
    once = NotificationPolicy(max_attempts=1)
    owed = MemoryNotificationStore(tasks)
    (one,) = [one for one in owed.notifications_of(first.task_id) if one.channel == "callback:catalog"]
    begun = owing.begun(one, NOW, once)
    owed.revise_notification(one, begun)
    owed.revise_notification(begun, owing.failed(begun, WHY, NOW + HOUR, once))
    return first.task_id


def states(tasks):
    return sorted((one.channel, one.state.value, one.attempts) for one in tasks.owed.values())


def test_dead_letters_are_listed_with_why(run, store):
    task_id = dead(store)
    shown = run("callbacks", "list").stdout
    assert shown.splitlines() == [
        "dead  callback:catalog, tried once",
        f"  2026-11-21 12:00:00Z task {task_id}, version 2",
        f"  {WHY}",
    ]
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "event" in run("callbacks", "list", "--all").stdout


def test_the_list_for_programs(run, store):
    task_id = dead(store)
    document = json.loads(run("callbacks", "list", "--json").stdout)
    (one,) = document["notifications"]
    assert one.keys() >= {"notification_id", "version", "due_at", "ended_ts"}
    assert (one["task_id"], one["channel"], one["state"]) == (task_id, "callback:catalog", "dead")
    assert one["last_error"] == WHY
    assert "body" not in one


def test_an_empty_list(run, store):
    assert run("callbacks", "list").stdout == "There are no dead letters.\n"
    assert "no notifications" in run("callbacks", "list", "--all").stdout
    assert json.loads(run("callbacks", "list", "--json").stdout) == {"notifications": []}


def test_a_task_s_dead_letters_are_sent_again(run, store):
    task_id, other = dead(store), dead(store)
    result = run("callbacks", "resend", task_id)
    assert result.exit_code == 0
    assert result.stdout == f"callback:catalog of task {task_id}, version 2 will be sent within a minute\n"
    assert states(store).count(("callback:catalog", "owed", 0)) == 1
    assert states(store).count(("callback:catalog", "dead", 1)) == 1
    assert run("callbacks", "resend", task_id).exit_code == 1
    assert json.loads(run("callbacks", "resend", other, "--json").stdout)["resent"][0]["task_id"] == other


def test_all_dead_letters_are_sent_again(run, store):
    for _ in range(3):
        dead(store)
    assert len(run("callbacks", "resend", "--all", "--yes").stdout.splitlines()) == 3
    assert [state for _, state, _ in states(store)] == ["owed"] * 6


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("n\n", 2)])
def test_all_are_confirmed_at_a_terminal(run, store, monkeypatch, answer, left):
    dead(store), dead(store)
    monkeypatch.setattr("delegation.cli.calls.at_a_terminal", lambda: True)
    result = run("callbacks", "resend", "--all", given=answer)
    assert "Send 2 dead letters again?" in result.stderr
    assert sum(state == "dead" for _, state, _ in states(store)) == left


@pytest.mark.parametrize("words", [(), ("--all", "some-task")])
def test_one_task_or_all_must_be_named(run, store, words):
    assert run("callbacks", "resend", *words).exit_code == 2


def test_a_dead_letter_that_cannot_be_changed_is_named_and_the_others_are_sent(run, store, monkeypatch):
    bad, good = dead(store), dead(store)
    revise = MemoryNotificationStore.revise_notification

    def failing(self, one, after):
        if one.task_id == bad:
            raise MalformedRecord("format: 9 is not 1")
        return revise(self, one, after)

    monkeypatch.setattr(MemoryNotificationStore, "revise_notification", failing)
    result = run("callbacks", "resend", "--all", "--yes", "--json")
    assert [one["task_id"] for one in json.loads(result.stdout)["resent"]] == [good]
    error = json.loads(result.stderr)
    assert (result.exit_code, error["error_code"]) == (4, "ITEMS_FAILED")
    assert f"callback:catalog of task {bad}, version 2 (MALFORMED" in error["message"]
    assert error["message"].startswith(f"1 of 2 dead letters could not be sent again: callback:catalog of task {bad}")


def test_nothing_to_send_names_the_next_step(run, store):
    result = run("callbacks", "resend", "--all")
    assert result.exit_code == 1
    assert "no task has a dead letter" in result.stderr
    assert "callbacks list --all" in result.stderr
