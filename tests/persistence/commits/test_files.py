"""Files that a commit names: there once it is acknowledged, and deleted only after a proved refusal."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.waiting import ChangeKind
from polaris_persistence.errors import BackendUnavailable, CommitContended, CommitUnknown
from tests.persistence.builders import Entity, Head, add, put
from tests.persistence.commits.commit_world import DOWN, LOST, Refusal, times
from tests.persistence.waiting.waiting_world import KINDS, Waiting


class Folder:
    """Files in memory; `calls` has their paths in the order of writing."""

    def __init__(self, world: Waiting) -> None:
        self.there: dict[str, bytes] = {}
        self.written: list[str] = []
        self.fail: list[Exception] = []
        self._world = world

    def write_many(self, files: Mapping[str, bytes]) -> None:
        self._world.backend.calls.append("write files")
        for path, content in files.items():
            assert path not in self.written
            self.written.append(path)
            self.there[path] = content
            if self.fail:
                raise self.fail.pop()

    def delete_many(self, paths: Collection[str]) -> None:
        self._world.backend.calls.append("delete files")
        for path in paths:
            self.there.pop(path, None)


def with_file(attempt: CommitAttempt[Head], name: Any) -> Changed[Head, str]:
    """Name a file by the present number of an entity, and raise it."""
    changed, number = add(name)(attempt)
    path = attempt.file(f"{name}/{number}-{attempt.new_id}.json", b"%d" % number)
    return Changed(changed, path)


FILED = ChangeKind[Head]("with file", with_file)


@pytest.fixture
def world() -> Waiting:
    world = Waiting()
    world.committer.commit(add("n"))
    return world


@pytest.fixture
def folder(world: Waiting) -> Folder:
    return Folder(world)


Process = Callable[..., Committer[Head]]


@pytest.fixture
def process(world: Waiting, folder: Folder) -> Process:
    return lambda **more: world.process(**{"kinds": [*KINDS, FILED], "files": folder, **more})[1]


def commit(committer: Committer[Head], name: str = "n") -> str:
    return committer.commit(lambda attempt: with_file(attempt, name)).result


def test_a_file_is_written_between_the_objects_and_the_swap(world: Waiting, folder: Folder, process: Process) -> None:
    committer = process()
    committer.head()
    world.calls()
    path = commit(committer)
    assert world.calls()[-3:] == ["put_many", "write files", "replace_reference"]
    assert folder.there == {path: b"2"}


def test_each_attempt_writes_its_own_and_the_lost_ones_are_deleted(
    world: Waiting, folder: Folder, process: Process
) -> None:
    times(world, 3)  # type: ignore[arg-type]
    path = commit(process())
    assert len(folder.written) == len(set(folder.written)) == 4
    assert folder.there == {path: b"2"}
    assert world.numbers()["n"] == 2


def test_a_lost_answer_deletes_nothing_that_was_applied(world: Waiting, folder: Folder, process: Process) -> None:
    world.backend.fail_after["replace_reference"] = [LOST]
    path = commit(process())
    assert folder.there == {path: b"2"}


def test_an_unknown_outcome_deletes_nothing(world: Waiting, folder: Folder, process: Process) -> None:
    world.backend.fail_after["replace_reference"] = [LOST] * 100
    world.backend.fail_before["read_reference"] = [None, *[DOWN] * 1_000]
    with pytest.raises(CommitUnknown):
        commit(process())
    assert len(folder.there) == 1


def test_a_refused_commit_leaves_no_file(world: Waiting, folder: Folder, process: Process) -> None:
    times(world, 100)  # type: ignore[arg-type]
    with pytest.raises(CommitContended):
        commit(process(retry=CommitRetries(tries=4)))
    assert folder.written
    assert folder.there == {}


def test_a_change_that_refuses_after_it_named_a_file_writes_none(folder: Folder, process: Process) -> None:
    def refuse(attempt: CommitAttempt[Head]) -> Changed[Head, None]:
        with_file(attempt, "n")
        raise Refusal("no")

    with pytest.raises(Refusal):
        process().commit(refuse)
    assert folder.written == []


def test_without_its_files_nothing_is_committed(world: Waiting, folder: Folder, process: Process) -> None:
    folder.fail = [BackendUnavailable("the bucket does not answer")]
    world.calls()
    with pytest.raises(BackendUnavailable, match="bucket"):
        commit(process())
    assert "replace_reference" not in world.calls()
    assert folder.there == {}
    assert world.numbers() == {"n": 1}


def test_who_combines_a_change_writes_its_file(world: Waiting, folder: Folder, process: Process) -> None:
    """Also for several changes of one entity, which see each other."""
    other = process()
    world.contend(then=lambda: commit(other))
    path = process().commit_data(FILED.name, "n").result
    assert world.numbers()["n"] == 3
    assert path in folder.there
    assert sorted(folder.there.values()) == [b"2", b"3"]


def test_who_has_no_files_leaves_the_change_to_its_process(world: Waiting, folder: Folder, process: Process) -> None:
    other = process(files=None)
    world.contend(then=lambda: other.commit(put("other", 1)))
    path = process().commit_data(FILED.name, "n").result
    assert folder.there == {path: b"2"}
    with pytest.raises(ValueError, match="`files`"):
        commit(other)


def test_a_path_is_named_once(process: Process) -> None:
    def twice(attempt: CommitAttempt[Head]) -> Changed[Head, None]:
        attempt.file("a", b"1")
        attempt.file("a", b"2")
        return Changed(None, None)

    with pytest.raises(ValueError, match="named twice"):
        process().commit(twice)


def test_the_seal_names_files_of_what_was_combined(world: Waiting, folder: Folder, process: Process) -> None:
    """A catalog writes one metadata file of a table that several combined changes have changed."""

    def seal(head: Head, attempt: CommitAttempt[Head]) -> Head:
        attempt.file(f"head-{attempt.new_id}", ",".join(sorted(head.entities)).encode())
        return head

    other = process(seal=seal)
    world.contend(then=lambda: other.commit(put("b", 1)))
    process(seal=seal).commit_data("add", "a")
    assert [content for content in folder.there.values() if b"a,b" in content] == [b"a,b,n,rival0,rival1"]


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_a_file_that_is_named_within_a_memo_is_there(
    world: Waiting, folder: Folder, process: Process, lost: int
) -> None:
    """A lost attempt's file is deleted, so the next attempt names another one."""
    times(world, lost)  # type: ignore[arg-type]

    def change(attempt: CommitAttempt[Head]) -> Changed[Head, None]:
        def make() -> Entity:
            return Entity(name=attempt.file(f"t/{attempt.new_id}.json", b"t"))

        head = attempt.head or Head()
        ref = attempt.write_once("t", None, make)
        return Changed(head.model_copy(update={"entities": {**head.entities, "t": ref}}), None)

    process().commit(change)
    store, committer = world.process()
    head = committer.head()
    assert head is not None
    found = store.fetch(head.value.entities["t"], Entity)
    assert found is not None
    assert folder.there == {found.value.name: b"t"}
