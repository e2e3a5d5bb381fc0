"""Sizes are counted from the syntax tree; what is no statement, no exception and no public member does not count."""

from tests.counts.sizes import LATER, exception_classes, members_of, room_of, statements, table

ERRORS = """
class StoreError(Exception): ...
class Lost(errors.StoreError[int]): ...
class Deep(Lost): ...
class Value: ...
"""
SERVICE = """
class Reads:
    '''Reads tasks.'''
    store: Store
    def get(self): return self._get()
class TaskService(Reads):
    def __init__(self):
        self.clock, other.clock2 = 1, 2
        self._hooks = 3
    @property
    def policy(self): ...
"""


def test_neither_lines_nor_comments_are_statements() -> None:
    assert statements({"a.py": "# a\nx = (\n    1,\n)\n\nif x:\n    pass\n"}) == {"a.py": 3}


def test_an_exception_is_known_by_its_bases() -> None:
    assert exception_classes({"a.py": ERRORS}) == {"StoreError", "Lost", "Deep"}


def test_members_of_bases_and_attributes_count_and_private_ones_do_not() -> None:
    assert members_of({"a.py": SERVICE}, "TaskService") == {"store", "get", "clock", "policy"}


def test_a_room_is_three_folders_at_most() -> None:
    assert room_of("functions/delegation/tasks/life/model.py") == "functions/delegation/tasks"
    assert room_of("infra/app.py") == "infra"


def test_what_came_later_is_left_out_of_the_last_columns() -> None:
    before = {"functions/delegation/tasks/a.py": "x = 1\ny = 2\n"}
    after = {"functions/delegation/tasks/a.py": "x = 1\n", f"{LATER[0]}a.py": "x = 1\ny = 2\nz = 3\n"}
    functions = table(before, after).splitlines()[1]
    assert functions.split() == ["functions", "2", "4", "+100%", "1", "-50%"]
