"""One random history of tables that borrow each other's files, with purges among it, against a model of who needs what.

A purge must not delete a file that a live table referenced at its moment, whatever happens to names meanwhile. And of
the files of its table a purge that succeeded leaves exactly these: what a live table references; what belonged to a
table that was dropped without a purge; and what is outside the location that its credentials cover, listed as
NOT_COVERED, or as AT_ANOTHER_TABLE at the location of a live table.

Beside them are tables that the catalog does not list: dropped ones, whose place is used again or not, those of a second
catalog, path tables, and clones that were dropped after both registrations were committed to. A purge deletes nothing
that one needs whose metadata is in the same folder, and none may find such a table where there is none.
"""

from collections.abc import Callable

from pyiceberg.table import Table

from delegation.tasks.life.model import Status
from tests.faults.histories.lakehouse import NAMESPACES, Lakehouse
from tests.faults.histories.replayable import replayable
from tests.kit.explorer import Story, WrongOutcome
from tests.kit.lakes.lake import rows

NAMES = tuple("abcdef")
_MOST_CHANGES = 3
"""Of names and entries while one purge runs."""

Name = tuple[str, str]


class History(Story):
    """Plays the steps of one seed, and purges at last what is left, one table after the other."""

    steps = 14
    surroundings = staticmethod(replayable)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.house = Lakehouse()
        self.wrong: list[str] = []
        self._purged: set[str] = set()
        self._not_covered: set[str] = set()
        self._abandoned: set[str] = set()
        self._number = 0
        self._ids: dict[Name, int] = {}
        self._unknown: dict[Name, int] = {}
        self._hidden: set[int] = set()
        self._uuids: set[str] = set()
        self._paths: set[str] = set()
        self._lost: set[str] = set()
        self._purged_uuid = ""

    def begin(self) -> None:
        for _ in range(3):
            self.create()

    def act(self) -> None:
        actions: list[Callable[[], None]] = [
            self.create,
            self.clone,
            self.borrow,
            self.commit,
            self.rename,
            self.swap,
            self.replace,
            self.drop,
            self.lose,
            self.purge,
            self.settle,
            self.commit_elsewhere,
            self.share,
            self.register,
            self.lose_commit,
        ]
        self.random.choices(actions, weights=(3, 3, 5, 2, 2, 2, 2, 1, 0.3, 4, 1, 1, 2, 0.5, 0.5))[0]()

    def check(self) -> None:
        if self.wrong:
            raise WrongOutcome("; ".join(self.wrong))

    def end(self) -> None:
        # Tables are created while others are purged.
        while names := self._shuffled():
            for name in names:
                if name in self.house.listed():
                    self._drop(name, purged=self._purge(name))
        self._check_left()
        self.check()

    def create(self, *, but: Name | None = None) -> None:
        """Create a table with a file, sometimes at the location of a dropped one of this name."""
        free = [one for one in self._all() if one not in self.house.listed() and one != but]
        if not free:
            return
        space, name = self.random.choice(free)
        self._number += 1
        again = self.random.random() < 0.3
        location = f"s3://lake/{space}/{name}" if again else f"s3://lake/{space}/{name}-{self._number}"
        self.house.lakes[space].create(name, location=location).append(rows(self._number))
        self._ids[space, name] = self._number
        self._note(f"create {space}.{name} at {location}")

    def clone(self) -> None:
        """Register a table again under another name."""
        source, target = self._any(), self._free()
        if source and target:
            self._pointers(target)[target[1]] = self._pointers(source)[source[1]]
            self._number += 1
            self._ids[target] = self._number
            self._note(f"clone {source} as {target}")

    def borrow(self) -> None:
        """Add files of one table to another one."""
        lender, borrower = self._any(), self._any()
        if not lender or not borrower or lender == borrower:
            return
        files = sorted(one for one in self.house.reached(*lender) if one.endswith(".parquet"))
        if files:
            some = self.random.sample(files, self.random.randint(1, min(2, len(files))))
            self._change(borrower, lambda table: table.add_files(some, check_duplicate_files=False))
            self._note(f"{borrower} borrows from {lender}")

    def commit(self) -> None:
        """Append to a table, or overwrite it."""
        one = self._any()
        if one:
            self._number += 1
            overwrites = self.random.random() < 0.3
            data = rows(self._number)
            self._change(one, lambda table: table.overwrite(data) if overwrites else table.append(data))
            self._note(f"{'overwrite' if overwrites else 'append to'} {one}")

    def rename(self, *, but: Name | None = None) -> None:
        """Rename a table to a name that is free."""
        source, target = self._any(but=but), self._free()
        if source and target:
            self._pointers(target)[target[1]] = self._pointers(source).pop(source[1])
            self._ids[target] = self._ids.pop(source)
            self._note(f"rename {source} to {target}")

    def swap(self, *, but: Name | None = None) -> None:
        """Have two tables change their names."""
        one, other = self._any(but=but), self._any(but=but)
        if one and other:
            mine, theirs = self._pointers(one), self._pointers(other)
            mine[one[1]], theirs[other[1]] = theirs[other[1]], mine[one[1]]
            self._ids[one], self._ids[other] = self._ids[other], self._ids[one]
            self._note(f"swap {one} and {other}")

    def replace(self, *, but: Name | None = None) -> None:
        """Drop a table and rename another one to its name."""
        staging, prod = self._any(but=but), self._any(but=but)
        if staging and prod and staging != prod:
            self._abandon(prod)
            self._pointers(prod)[prod[1]] = self._pointers(staging).pop(staging[1])
            self._ids[prod] = self._ids.pop(staging)
            self._note(f"replace {prod} by {staging}")

    def drop(self, *, but: Name | None = None) -> None:
        """Drop a table without its files."""
        one = self._any(but=but)
        if one:
            self._drop(one)

    def settle(self) -> None:
        """Have another catalog, or an engine without one, write a table of its own at the place of a table."""
        one = self._any()
        if one:
            self._number += 1
            place = self.house.location(*one)
            # A folder has the versions of one path table.
            kind = "second" if place in self._paths else self.random.choice(("second", "path"))
            self._paths |= {place} if kind == "path" else set()
            name = f"{kind}{self._number}"
            self.house.unlisted.create(name, location=place.rstrip("/"))
            self._commit_elsewhere(name, lambda table: table.append(rows(self._number)))
            self._note(f"settle {name} at the place of {one}")

    def commit_elsewhere(self) -> None:
        """Commit to a table that the catalog does not list."""
        name = self._unlisted()
        if name:
            self._number += 1
            self._commit_elsewhere(name, lambda table: table.append(rows(self._number)))
            self._note(f"append to {name}")

    def share(self) -> None:
        """Add files of a table to one at its place that the catalog does not list, or the other way round."""
        one, name = self._any(), self._unlisted()
        if one and name and self._folder(name) == self.house.location(*one):
            own, theirs = self.house.reached(*one), self.house.reached_unlisted(name)
            lends = self.random.random() < 0.5
            files = sorted(path for path in (own if lends else theirs) if path.endswith(".parquet"))[:2]
            if files and lends:
                self._commit_elsewhere(name, lambda table: table.add_files(files, check_duplicate_files=False))
            elif files:
                self._change(one, lambda table: table.add_files(files, check_duplicate_files=False))
            self._note(f"{name} {'borrows from' if lends else 'lends to'} {one}")

    def register(self) -> None:
        """List a table that was not."""
        name, target = self._unlisted(), self._free()
        if name and target and self.house.is_whole(name):
            self._pointers(target)[target[1]] = self.house.unlisted.pointers.pop(name)
            self._number += 1
            self._ids[target] = self._number
            self._note(f"register {name} as {target}")

    def lose_commit(self) -> None:
        """Write the metadata file of a commit that is refused."""
        one = self._any()
        if one:
            before = self._pointers(one)[one[1]]
            self._number += 1
            self._change(one, lambda table: table.append(rows(self._number)))
            self._abandoned |= self.house.reached(*one)
            self._pointers(one)[one[1]] = before
            self._lost.add(str(self.house.table(*one).metadata.table_uuid))
            self._note(f"lose a commit of {one}")

    def _commit_elsewhere(self, name: str, change: Callable[[Table], object]) -> None:
        lake = self.house.unlisted
        try:
            change(lake.table(name))
        except FileNotFoundError:
            self._note(f"  {name} cannot be written to")
            return
        if name.startswith("path"):
            self.house.name_by_version(name)
        self._note_unlisted(name)

    def _note_unlisted(self, name: str) -> None:
        self._uuids.add(self.house.unlisted_uuid(name))
        self._abandoned |= self.house.reached_unlisted(name)

    def _elsewhere(self) -> list[str]:
        """Return the tables that the catalog does not list, and that have their metadata file."""
        lake = self.house.unlisted
        return [name for name, pointer in lake.pointers.items() if lake.io.new_input(pointer).exists()]

    def _unlisted(self) -> str | None:
        names = self._elsewhere()
        return self.random.choice(names) if names else None

    def _folder(self, name: str) -> str:
        return f"{str(self.house.unlisted.metadata(name)['location']).rstrip('/')}/"

    def _beside(self, name: Name) -> dict[str, frozenset[str]]:
        """Return the files of tables that the catalog does not list, and whose metadata is beside that of a table.

        Of the same uuid these are forks: two files that name each other outside the logs of all tables that are listed.
        """
        known = {path for one in self.house.listed() if self.house.readable(*one) for path in self.house.chain(*one)}
        uuid, place = str(self.house.table(*name).metadata.table_uuid), self.house.location(*name)
        return {
            one: self.house.read_unlisted(one)
            for one in self._elsewhere()
            if self._folder(one) == place
            and (self.house.unlisted_uuid(one) != uuid or len(self.house.unlisted_chain(one) - known) > 1)
        }

    def lose(self) -> None:
        """Lose a manifest of a table."""
        one = self._any()
        if one:
            manifests = sorted(path for path in self.house.reached(*one) if path.endswith("-m0.avro"))
            if manifests:
                self._abandoned |= self.house.lose(one, self.random.choice(manifests))
                self._note(f"lose a manifest of {one}")

    def purge(self) -> None:
        """Purge a table, and drop it if that succeeded; some changes of names happen while it runs."""
        one = self._any()
        if one and self._purge(one):
            self._drop(one, purged=True)

    def _purge(self, name: Name) -> bool:
        if not self.house.readable(*name):
            return False
        needed = {
            (self._ids[one], path)
            for one in self.house.listed()
            if one != name and self.house.readable(*one)
            for path in self.house.reached(*one)
        }
        self._purged_uuid = str(self.house.table(*name).metadata.table_uuid)
        own, location, beside = self.house.reached(*name), self.house.location(*name), self._beside(name)
        others = self._locations(but=name)
        self._note(f"purge {name}")
        self._unknown = {one: self._ids[one] for one in self.house.listed() if not self.house.knows(*one)}
        changes, before = [0], self._number

        def change() -> None:
            if changes[0] < _MOST_CHANGES and self.random.random() < 0.15:
                changes[0] += 1
                created = self._number
                self.random.choice((self.rename, self.swap, self.replace, self.drop, self.create))(but=name)
                # docs/limits.md: a table that the index does not know is found wherever it is renamed once, if another
                # one is created under its name meanwhile.
                new = {one for one, table in self._ids.items() if table > created}
                self._hidden |= {self._unknown[one] for one in new & self._unknown.keys()}

        self.house.during = change
        task = self.house.purged(*name)
        self.house.during = lambda: None
        self._unknown, self._hidden = {}, set()
        self.counts["purges"] += 1
        self._note(f"  {task.status.value} {task.error_code or ''}")
        live = set(self._ids.values())
        gone = sorted(path for table, path in needed if table in live and not self._exists(path))
        self.wrong.extend(f"deleted: {path} by the purge of {name}" for path in gone)
        for one, files in beside.items():
            lost = sorted(path for path in files if not self._exists(path))
            self.wrong.extend(f"deleted: {path} of {one}, not listed, by the purge of {name}" for path in lost)
        found = self.house.found_unlisted(task)
        self.counts["unlisted"] += len(found & self._uuids)
        created = {one for one, table in self._ids.items() if table > before and self.house.readable(*one)}
        listed = {str(self.house.table(*one).metadata.table_uuid) for one in created}
        self.wrong.extend(f"{one} is found, and no unlisted table" for one in found - self._uuids - listed)
        if task.status is Status.SUCCESS:
            self.counts["succeeded"] += 1
            self._purged |= own
            self._check(name, own, location, self.house.kept_by(task), {path for _table, path in needed}, others)
        return task.status is Status.SUCCESS

    def _check(
        self,
        name: Name,
        own: frozenset[str],
        location: str,
        kept: dict[str, str],
        at_moment: set[str],
        others: frozenset[str],
    ) -> None:
        """Compare what a purge that succeeded left of its table with what it may leave, file by file.

        A file that nobody needs at the location of another table, live at its moment (`others`) or now, stays and is
        listed: it is an orphan file there.
        """
        at_others = tuple(others | self._locations(but=name))
        self._abandoned |= {one for one in own if kept.get(one) == "at-another-table" and one.startswith(at_others)}
        needed = at_moment | self._needed(but=name) | self._abandoned
        for path in sorted(one for one in own if one not in needed and self._exists(one)):
            if path.startswith(location):
                self.wrong.append(f"left: {path} by the purge of {name}, which covers it")
            elif kept.get(path) != "not-covered":
                self.wrong.append(f"left: {path} by the purge of {name}, which lists it as {kept.get(path)}")
        listed = {path for path, reason in kept.items() if reason == "not-covered"}
        wrong = sorted(path for path in listed if path.startswith(location))
        self.wrong.extend(f"left: {path}, listed as NOT_COVERED by the purge of {name}" for path in wrong)
        self._not_covered |= listed

    def _check_left(self) -> None:
        """Find files of purged tables that are left, referenced by none and not listed as NOT_COVERED."""
        left = (self._purged & set(self.house.lake.uris())) - self._needed() - self._abandoned
        self.counts["not covered"] = len(left & self._not_covered)
        self.wrong.extend(f"left: {path} at the end" for path in sorted(left - self._not_covered))

    def _needed(self, *, but: Name | None = None) -> set[str]:
        """Return every file of the tables that can be read, without one of them."""
        tables = (one for one in self.house.listed() if one != but and self.house.readable(*one))
        return {path for one in tables for path in self.house.reached(*one)}

    def _locations(self, *, but: Name) -> frozenset[str]:
        """Return the locations of the tables that can be read, without one of them."""
        tables = (one for one in self.house.listed() if one != but and self.house.readable(*one))
        return frozenset(self.house.location(*one) for one in tables)

    def _abandon(self, name: Name) -> None:
        """Note the files of a table that is dropped and not purged: no purge is to delete what only it references."""
        if self.house.readable(*name):
            self._number += 1
            unlisted = f"dropped{self._number}"
            self.house.unlisted.pointers[unlisted] = self._pointers(name)[name[1]]
            self._note_unlisted(unlisted)

    def _exists(self, path: str) -> bool:
        return self.house.lake.io.new_input(path).exists()

    def _drop(self, name: Name, *, purged: bool = False) -> None:
        if not purged:
            self._abandon(name)
        else:
            # What is left of a table with a lost commit looks like a table.
            self._uuids |= self._lost & {self._purged_uuid}
        del self._pointers(name)[name[1]], self._ids[name]
        self._note(f"drop {name}")

    def _change(self, name: Name, change: Callable[..., object]) -> None:
        try:
            change(self.house.table(*name))
        except FileNotFoundError:
            self._note(f"  {name} cannot be written to")

    def _all(self) -> list[Name]:
        return [(space, name) for space in NAMESPACES for name in NAMES]

    def _any(self, *, but: Name | None = None) -> Name | None:
        """Return a table that has its metadata file."""
        tables = [one for one in self.house.listed() if one != but and self._ids[one] not in self._hidden]
        some = [one for one in tables if self.house.readable(*one)]
        return self.random.choice(some) if some else None

    def _free(self) -> Name | None:
        free = [one for one in self._all() if one not in self.house.listed()]
        return self.random.choice(free) if free else None

    def _shuffled(self) -> list[Name]:
        tables = self.house.listed()
        self.random.shuffle(tables)
        return tables

    def _pointers(self, name: Name) -> dict[str, str]:
        return self.house.lakes[name[0]].pointers

    def _note(self, text: str) -> None:
        self.told.append(text)
