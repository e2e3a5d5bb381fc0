"""The wheel, in environments that have nothing of this checkout: what users get."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from delegation.tasks.contract import CONCURRENT, SEQUENTIAL
from tests.paths import ROOT
from tests.unit.extras.fresh import FreshEnvironment, built_wheel

EVERY_COMMAND = """
from delegation.cli.main import BUILT_IN
for name, command in BUILT_IN.items():
    if name != "local":  # a part of a checkout
        command.load()
"""
SOURCES = [ROOT / "functions" / name for name in ("delegation", "polaris_common", "polaris_persistence")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_every_file_of_the_package(wheel):
    """Modules, pages, schemas, prices: whatever is below the import roots is read at run time."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = (path for root in SOURCES for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert packed == {path.relative_to(ROOT / "functions").as_posix() for path in files}


def run_tests(wheel: Path, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a file of tests where nothing of this checkout but the wheel is imported."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    (folder / "test_stores.py").write_text(text, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**kept, "PYTHONPATH": str(folder / "installed")}
    words = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "test_stores.py"]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_store_of_your_own_is_tested_with_the_contract_of_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """The example of docs/workers.md."""
    page = (ROOT / "docs" / "workers.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(# acme/test_stores\.py\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    ran = run_tests(wheel, example, tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert f"{len(SEQUENTIAL) + len(CONCURRENT)} passed" in ran.stdout


IN_MEMORY = {
    "backends.BackendContract": ("store", "polaris_persistence.backends.memory", "MemoryBackend()"),
    "healths.HealthStoreContract": ("store", "memory_dynamodb", "MemoryHealthStore()"),
    "idempotency.IdempotencyStoreContract": (
        "stores",
        "idempotency.store",
        "(tasks := MemoryTaskStore(), MemoryIdempotencyStore(tasks))",
    ),
    "object_stores.ObjectStoreContract": (
        "tested",
        "storage.memory",
        "on(MemoryObjectStore(versioned_buckets=['versions']), MemoryPlanStore())",
    ),
    "pauses.PauseStoreContract": ("store", "tasks.pauses", "MemoryPauseStore()"),
    "references.ReferenceStoreContract": ("store", "memory_dynamodb", "MemoryReferenceStore()"),
    "reservations.ReservationStoreContract": ("store", "idempotency.reservations", "MemoryReservationStore()"),
    "tombstones.TombstoneStoreContract": ("store", "memory_dynamodb", "MemoryTombstoneStore()"),
}
"""The contracts of delegation.testing and polaris_persistence.testing: the fixture, and a store to give it."""
_HELPERS = """
import pytest
from delegation.storage.locations import ObjectLocation
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.testing.object_stores import StoreUnderTest


def on(store, plans):
    return StoreUnderTest(
        store,
        plans,
        lambda bucket, key, data: store.put(ObjectLocation(bucket, key), data),
        lambda bucket: {key for where, key in store.objects if where == bucket},
        deny_versioning=lambda: setattr(store, "versioning_denied", True),
    )
"""


@pytest.mark.long
def test_other_stores_of_your_own_are_tested_with_the_contracts_of_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """Each contract on a store in memory; one of a broken store fails and shows its values."""
    files = {path.stem for path in (ROOT / "functions" / "delegation" / "testing").glob("*.py")} - {"__init__"}
    assert files | {"backends"} == {name.partition(".")[0] for name in IN_MEMORY}
    text = _HELPERS
    for name, (fixture, module, made) in IN_MEMORY.items():
        place, _, contract = name.partition(".")
        text += f"""
from {module if module.startswith(("polaris", "memory_")) else f"delegation.{module}"} import *
from {"polaris_persistence" if place == "backends" else "delegation"}.testing.{place} import {contract}


class TestOf{contract}({contract}):
    @pytest.fixture
    def {fixture}(self):
        return {made}
"""
    text += """

class TestOfAForgetfulStore(TestOfPauseStoreContract):
    @pytest.fixture
    def store(self):
        store = MemoryPauseStore()
        store.write = lambda record: True
        return store
"""
    shutil.copyfile(ROOT / "tests" / "kit" / "dynamodb.py", tmp_path / "memory_dynamodb.py")
    ran = run_tests(wheel, text, tmp_path)
    outcomes = set(re.findall(r"::TestOf(\w+)::\S+ (PASSED|FAILED|ERROR|SKIPPED)", ran.stdout))
    passed = {(name.partition(".")[2], "PASSED") for name in IN_MEMORY}
    assert outcomes == passed | {("AForgetfulStore", "FAILED")}, ran.stdout
    assert "assert PauseRecord(" in ran.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("extra", "program"),
    [
        ("", "import delegation.client"),
        ("client", "import delegation.client"),
        ("service", "import delegation.handlers.api, delegation.handlers.sweeper, delegation.wiring.worker"),
        ("service,cli", EVERY_COMMAND),
        ("spark", "import delegation, pyspark, pyarrow"),
    ],
    ids=lambda value: value if " " not in value else "",
)
def test_an_extra_alone_brings_what_its_part_needs(wheel, tmp_path, extra, program):
    done = FreshEnvironment(tmp_path, extra, wheel).run("python", "-c", program)
    assert done.returncode == 0, done.stderr
