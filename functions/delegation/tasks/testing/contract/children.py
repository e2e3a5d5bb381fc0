"""What every TaskStore promises of children: recorded under parent and child, in items of their own."""

from delegation.tasks.errors import RevisionConflict, StaleTask
from delegation.tasks.life.model import AdoptedChildren, Task
from delegation.tasks.stores.base import MOST_AT_ONCE, Adopt, Advance, Child, Create, Revise, TaskStore
from delegation.tasks.testing.contract.support import (
    FAR,
    Check,
    acquired,
    failed,
    refused,
    row,
    rows,
    started,
    stored,
    submitted,
    touched,
)


def a_child(attempt: int = 1, task_id: str | None = None, payload: str = "{}") -> Child:
    return Child(submitted(task_id).task_id, attempt, "CHILD", payload)


def a_parent(store: TaskStore) -> Task:
    task = store.apply(Create(submitted()))
    return store.apply(Advance(task, acquired(task)))


def adopt_records_child_and_parent_without_a_change_of_the_head(store: TaskStore) -> None:
    parent, child = a_parent(store), a_child(payload='{"é": 1}')
    assert (store.children(parent.task_id), store.parents(child.task_id)) in [((), {}), ([], {})]
    assert store.apply(Adopt(parent, parent, child)) == parent
    assert list(store.children(parent.task_id)) == [child]
    assert store.parents(child.task_id) == {parent.task_id: 1}
    assert store.get(parent.task_id) == parent
    assert rows(store, parent.task_id)[-1] == row(parent)


def adopt_rewrites_the_head_like_revise(store: TaskStore) -> None:
    parent, child = a_parent(store), a_child()
    after = touched(parent, family=AdoptedChildren(child_ordinal=1))
    assert store.apply(Adopt(parent, after, child)) == after
    assert store.get(parent.task_id) == after
    assert len(rows(store, parent.task_id)) == 2
    assert list(store.children(parent.task_id)) == [child]
    assert store.apply(Adopt(parent, after, child)) == after  # its answer was lost


def adopt_by_a_later_attempt_replaces_the_attempt(store: TaskStore) -> None:
    parent, child = a_parent(store), a_child()
    store.apply(Adopt(parent, parent, child))
    again = a_child(attempt=4, task_id=child.task_id)
    store.apply(Adopt(parent, parent, again))
    assert list(store.children(parent.task_id)) == [again]
    assert store.parents(child.task_id) == {parent.task_id: 4}


def adopt_of_a_former_version_is_refused_and_records_nothing(store: TaskStore) -> None:
    parent, child = a_parent(store), a_child()
    head = store.apply(Advance(parent, started(parent)))
    assert refused(store, Adopt(parent, parent, child), StaleTask) == head
    assert (
        refused(store, Adopt(parent, touched(parent, family=AdoptedChildren(child_ordinal=1)), child), StaleTask)
        == head
    )
    assert not store.children(parent.task_id)
    assert store.parents(child.task_id) == {}


def adopt_checks_the_revision_where_it_rewrites_the_head(store: TaskStore) -> None:
    parent, child = a_parent(store), a_child()
    head = store.apply(Revise(parent, touched(parent, dispatches=parent.dispatches.evolve(count=1))))
    assert (
        refused(store, Adopt(parent, touched(parent, family=AdoptedChildren(child_ordinal=1)), child), RevisionConflict)
        == head
    )
    assert not store.children(parent.task_id)
    assert store.apply(Adopt(parent, parent, child)).version == head.version
    assert list(store.children(parent.task_id)) == [child]
    assert store.get(parent.task_id) == head


def children_are_listed_by_id_and_seen_by_no_other_read(store: TaskStore) -> None:
    one, other = a_parent(store), a_parent(store)
    children = sorted((a_child() for _ in range(5)), key=lambda child: child.task_id)
    for child in reversed(children):
        store.apply(Adopt(one, one, child))
    store.apply(Adopt(other, other, children[0]))
    assert list(store.children(one.task_id)) == children
    assert list(store.children(other.task_id)) == children[:1]
    assert store.parents(children[0].task_id) == {one.task_id: 1, other.task_id: 1}
    assert store.parents(children[1].task_id) == {one.task_id: 1}
    assert {head.task_id for head in store.heads().tasks} == {one.task_id, other.task_id}
    assert store.heads().unreadable == ()
    assert {entry.task_id for entry in store.due(FAR)} == {one.task_id, other.task_id}
    assert len(rows(store, one.task_id)) == 2


def disown_deletes_what_no_later_attempt_adopted(store: TaskStore) -> None:
    """More children than one DynamoDB transaction deletes."""
    parent, other = a_parent(store), a_parent(store)
    children = [a_child(attempt=1 + n % 3) for n in range(70)]
    for child in children:
        store.apply(Adopt(parent, parent, child))
    store.apply(Adopt(other, other, children[0]))
    assert store.disown(parent.task_id, 2) == 47
    left = sorted((child for child in children if child.attempt == 3), key=lambda child: child.task_id)
    assert list(store.children(parent.task_id)) == left
    assert store.parents(children[0].task_id) == {other.task_id: 1}
    assert store.parents(left[0].task_id) == {parent.task_id: 3}
    assert store.disown(parent.task_id, 2) == 0
    assert list(store.children(other.task_id)) == [children[0]]


def remove_deletes_the_records_of_children(store: TaskStore) -> None:
    parent, other, child = a_parent(store), a_parent(store), a_child()
    marked = store.apply(Adopt(parent, touched(parent, family=AdoptedChildren(children=(parent.task_id,))), child))
    store.apply(Adopt(other, other, child))
    done = store.apply(Advance(marked, failed(marked)))
    assert store.remove(done) is True
    assert not store.children(parent.task_id)
    assert store.parents(child.task_id) == {other.task_id: 1}


def a_child_outlives_its_records(store: TaskStore) -> None:
    """Removing a child leaves its parent's record of it, which a child of the same id finds."""
    parent, first = a_parent(store), submitted()
    store.apply(Adopt(parent, parent, a_child(task_id=first.task_id)))
    child = stored(store, [first, failed(acquired(first)).evolve(version=2, revision=2)])
    assert store.remove(child) is True
    assert [one.task_id for one in store.children(parent.task_id)] == [first.task_id]
    assert store.parents(first.task_id) == {parent.task_id: 1}


def adopt_records_several_children_or_none(store: TaskStore) -> None:
    parent = a_parent(store)
    children = sorted((a_child() for _ in range(MOST_AT_ONCE)), key=lambda child: child.task_id)
    after = touched(parent, family=AdoptedChildren(children=(parent.task_id,)))
    assert store.apply(Adopt(parent, after, children[0], tuple(children[1:]))) == after
    assert list(store.children(parent.task_id)) == children
    assert {tuple(store.parents(child.task_id)) for child in children} == {(parent.task_id,)}
    late = tuple(a_child() for _ in range(2))
    assert (
        refused(
            store,
            Adopt(parent, touched(parent, family=AdoptedChildren(child_ordinal=9)), late[0], late[1:]),
            RevisionConflict,
        )
        == after
    )
    assert list(store.children(parent.task_id)) == children
    assert not store.parents(late[1].task_id)


def create_all_stores_all_or_none(store: TaskStore) -> None:
    tasks = [submitted() for _ in range(MOST_AT_ONCE)]
    assert store.create_all(tasks) is True
    for task in tasks:
        assert (store.get(task.task_id), rows(store, task.task_id)) == (task, [row(task)])
        assert store.apply(Create(task)) == task  # its answer was lost
    assert {entry.task_id for entry in store.due(FAR)} == {task.task_id for task in tasks}
    new = submitted()
    assert store.create_all([new, submitted(tasks[0].task_id, nonce="another")]) is False
    assert store.get(new.task_id) is None
    assert store.get(tasks[0].task_id) == tasks[0]


def get_many_returns_the_heads_that_exist(store: TaskStore) -> None:
    tasks = [submitted() for _ in range(130)]
    for start in range(0, len(tasks), MOST_AT_ONCE):
        assert store.create_all(tasks[start : start + MOST_AT_ONCE])
    later = store.apply(Advance(tasks[0], acquired(tasks[0])))
    heads = {task.task_id: task for task in tasks} | {later.task_id: later}
    assert store.get_many([*heads, "absent", tasks[0].task_id]) == heads
    assert store.get_many([]) == {}


CHECKS: tuple[Check, ...] = (
    adopt_records_several_children_or_none,
    create_all_stores_all_or_none,
    get_many_returns_the_heads_that_exist,
    adopt_records_child_and_parent_without_a_change_of_the_head,
    adopt_rewrites_the_head_like_revise,
    adopt_by_a_later_attempt_replaces_the_attempt,
    adopt_of_a_former_version_is_refused_and_records_nothing,
    adopt_checks_the_revision_where_it_rewrites_the_head,
    children_are_listed_by_id_and_seen_by_no_other_read,
    disown_deletes_what_no_later_attempt_adopted,
    remove_deletes_the_records_of_children,
    a_child_outlives_its_records,
)
