"""Objects put at and beside the location of a table that Spark wrote: orphan files of every kind, and traps."""

import unicodedata
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tests.actions.records import Json
from tests.fixtures.corpus import FixtureTable, Scenario, plain
from tests.kit.stories.tables import PathTable, StoryTable, Warehouse

OLD: Final = timedelta(days=30)
LIMIT: Final = timedelta(days=3)
"""The age that is asked for: what is older may be deleted."""
UNLISTED: Final = "of a table that no catalog lists"
_NAMES: Final = uuid.UUID("6f2c1c1e-7f43-4b57-9f0a-0d9b4f3c2a11")


@dataclass(frozen=True, slots=True)
class Plant:
    """An object that no table names. `stays` is why the service leaves it, "" if the service must delete it."""

    kind: str
    uri: str
    data: bytes = b"orphan"
    age: timedelta = OLD
    stays: str = ""


def plants(scenario: Scenario, table: FixtureTable, document: Json) -> list[Plant]:
    """Return the objects to plant for a table: the same at each call, none under a key that the scenario has."""
    at = plain(document["location"]).rstrip("/")
    found = [*_orphans(scenario, table, at), *_spellings(table, at), *_left(at), *_beside(at)]
    return [one for one in found if one.uri not in scenario.objects]


def unlisted(document: Json) -> list[Plant]:
    """Return the objects of tables that no catalog lists: at the location of a table, and at three places below it."""
    at, lake = plain(document["location"]).rstrip("/"), Warehouse()
    for name, folder in (("dropped", at), ("second catalog", f"{at}/data/second")):
        StoryTable.create(lake, name, folder=folder).append(2)
    path = PathTable.create(lake, "path", folder=f"{at}/path")
    path.append(2)
    path.append(1)
    lake.put(f"{at}/delta/_delta_log/{0:020d}.json")
    lake.put(f"{at}/delta/part-0.parquet")
    return [Plant("unlisted", uri, lake.get(uri), stays=UNLISTED) for uri in sorted(lake.uris())]


def _orphans(scenario: Scenario, table: FixtureTable, at: str) -> Iterator[Plant]:
    name = _namer(at)
    below = [uri for uri in sorted(table.reached()) if uri.startswith(f"{at}/")]
    data = [uri for uri in below if uri.endswith(".parquet")]
    folder = data[0].rpartition("/")[0] if data else f"{at}/data/p=1"
    manifests = [uri for uri in below if uri.endswith(".avro") and "/snap-" not in uri]
    lists = [uri for uri in below if uri.endswith(".avro") and "/snap-" in uri]
    current = scenario.content[plain(table.metadata_location)]
    yield Plant("data file in the folder of a live one", f"{folder}/{name('data')}.parquet")
    yield Plant("data file of a partition without live ones", f"{at}/data/gone=1/{name('gone')}.parquet")
    yield Plant("file at the location itself", f"{at}/{name('stray')}.parquet")
    yield Plant("delete file", f"{at}/data/{name('deletes')}-deletes.parquet")
    yield Plant("deletion vectors (Puffin)", f"{at}/data/{name('vectors')}.puffin")
    yield Plant("statistics (Puffin)", f"{at}/metadata/{name('statistics')}.stats")
    if manifests:
        content = scenario.content[manifests[0]]
        yield Plant("manifest that names live files", f"{at}/metadata/{name('manifest')}-m0.avro", content)
    if lists:
        content = scenario.content[lists[0]]
        yield Plant("manifest list", f"{at}/metadata/snap-1-1-{name('list')}.avro", content)
    yield Plant("metadata.json that no log names", f"{at}/metadata/00000-{name('json')}.metadata.json", current)
    yield Plant("object without bytes", f"{at}/data/{name('empty')}.parquet", b"")
    yield Plant("key with //", f"{at}/data//{name('slashes')}.parquet")
    yield Plant("key with // at the location", f"{at}//{name('slashes at')}.parquet")
    yield Plant("percent-encoded key", f"{at}/data/p=a%20b/{name('encoded')}.parquet")
    yield Plant("key with space and plus", f"{at}/data/p=a b+c/{name('space')}.parquet")
    composed = unicodedata.normalize("NFC", "é")
    yield Plant("key in Unicode, composed", f"{at}/data/p={composed}/{name('composed')}.parquet")
    yield Plant("key in Unicode, decomposed", f"{at}/data/p=e\u0301/{name('decomposed')}.parquet")
    yield Plant("marker of a directory by Hadoop", f"{at}/data_$folder$", b"")
    just = LIMIT + timedelta(hours=1)
    yield Plant("hardly old enough", f"{at}/data/{name('just')}.parquet", age=just)


def _spellings(table: FixtureTable, at: str) -> Iterator[Plant]:
    """Yield keys that some reader takes for a needed file."""
    below = [uri for uri in sorted(table.reached()) if uri.startswith(f"{at}/") and uri.endswith(".parquet")]
    for uri in below[:1]:
        folder, _, name = uri.rpartition("/")
        why = "a needed file, spelled another way"
        yield Plant("needed file with //", f"{folder}//{name}", stays=why)
        yield Plant("needed file, percent-encoded", f"{folder}/%{ord(name[0]):02X}{name[1:]}", stays=why)
        yield Plant("needed file with /./", f"{at}/./{uri.removeprefix(f'{at}/')}", stays=why)


def _left(at: str) -> Iterator[Plant]:
    name = _namer(at)
    for path in ("_temporary/0/part-0.parquet", ".staging/part-0.parquet", "data/_SUCCESS", "data/.part-0.parquet.crc"):
        yield Plant(f"hidden: {path}", f"{at}/{path}", stays="hidden")
    yield Plant("too young", f"{at}/data/{name('young')}.parquet", age=timedelta(hours=1), stays="too young")
    almost = LIMIT - timedelta(hours=1)
    yield Plant("almost old enough", f"{at}/data/{name('almost')}.parquet", age=almost, stays="too young")
    yield Plant("marker of a directory", f"{at}/data/empty/", b"", stays="a directory marker")
    yield Plant("marker of the location", f"{at}/", b"", stays="a directory marker")
    yield Plant("key with #", f"{at}/data/{name('hash')}#1.parquet", stays="a key with # or ?")
    yield Plant("key with ?", f"{at}/data/{name('mark')}?v=1.parquet", stays="a key with # or ?")
    yield Plant("version hint", f"{at}/metadata/version-hint.text", b"1", stays="the version hint")


def _beside(at: str) -> Iterator[Plant]:
    """Yield objects at places that begin as the table's location does."""
    for path in ("2/data/x.parquet", "-backup/data/x.parquet", ".parquet", "_old/metadata/x.metadata.json"):
        yield Plant(f"beside: {path}", f"{at}{path}", stays="not at the location")


def _namer(at: str) -> Callable[[str], str]:
    return lambda kind: str(uuid.uuid5(_NAMES, f"{at} {kind}"))
