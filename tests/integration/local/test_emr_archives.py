"""Jobs of the local EMR run from the archive under its S3 key: what Spark would not unpack fails here too."""

import json
import shutil
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from infra.environment.resources import packaged_job
from infra.local import deployment
from infra.local.emr.spark_jobs import Unpacking, parsed, unpack, unpacking
from infra.package.parts import ARCHIVES, SPARK
from infra.package.trees import write_tar
from tests.integration.local.test_emr import Emr, program

__all__ = ["program"]
JOB = Path(__file__).parent / "fixtures" / "spark_package.py"
IMPORTS = 'exec "$PYSPARK_DRIVER_PYTHON" -c "import {module}; print({module}.__file__)"'


class Archives(Emr):
    """The endpoint, with objects that jobs download."""

    def __init__(self, folder: Path) -> None:
        self.objects: dict[str, Path] = {}
        super().__init__(folder)

    def put(self, key: str, path: Path) -> str:
        self.objects[key] = path
        return f"s3://code/{key}"

    def _download(self, bucket: str, key: str, target: Path) -> None:
        shutil.copyfile(self.objects[key], target)


@pytest.fixture
def emr(tmp_path):
    emr = Archives(tmp_path)
    yield emr
    emr.close()


@pytest.fixture
def archive(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "one_module.py").write_text("VALUE = 1\n", encoding="utf-8")
    write_tar(tree, tmp_path / "code.archive")
    return tmp_path / "code.archive"


def ended(emr, run):
    return emr.until(run, "SUCCESS", "FAILED")["state"]


def test_a_job_imports_what_its_archive_has(emr, program, archive):
    program(IMPORTS.format(module="one_module"))
    run = emr.start(parameters=packaged_job(emr.put("0123.tgz", archive)))
    assert ended(emr, run) == "SUCCESS"
    assert emr.stdout(run).strip().endswith("/work/package/one_module.py")


def test_an_archive_whose_key_keeps_only_the_last_of_two_extensions_is_not_unpacked(emr, program, archive):
    program(IMPORTS.format(module="one_module"))
    run = emr.start(parameters=packaged_job(emr.put("0123.gz", archive)))
    assert ended(emr, run) == "FAILED"
    assert (emr.folder / "emr" / run / "work" / "package").is_file()
    assert "No module named 'one_module'" in (emr.folder / "emr" / run / "stderr").read_text()


@pytest.mark.parametrize("module", ["delegation", "infra", "boto3"])
def test_a_job_finds_no_package_of_this_machine(emr, program, archive, module):
    program(IMPORTS.format(module=module))
    run = emr.start(parameters=packaged_job(emr.put("0123.tgz", archive)))
    assert ended(emr, run) == "FAILED"


def test_the_local_stack_publishes_the_archive_below_a_key_that_spark_unpacks(tmp_path):
    uploaded = {}

    class S3:
        def upload_file(self, path, bucket, key):
            if key.endswith(Path(ARCHIVES[SPARK]).suffix):
                with tarfile.open(path) as opened:
                    uploaded[key] = opened.getnames()

    code = deployment.publish(S3(), "code")
    assert unpacking(code.archive) is Unpacking.TAR
    assert "delegation/wiring/spark.py" in uploaded[code.archive.removeprefix("s3://code/")]
    assert code.entry_point.endswith(".py")


def test_a_damaged_archive_fails_the_job(emr, program, tmp_path):
    program("exit 0")
    (tmp_path / "damaged").write_bytes(b"not a tar")
    run = emr.start(parameters=packaged_job(emr.put("0123.tgz", tmp_path / "damaged")))
    assert "Job failed to start" in emr.until(run, "FAILED")["stateDetails"]


def without_filters(monkeypatch):
    """Take away what Python 3.11.2, that of Debian 12, does not have: filters of archives."""
    monkeypatch.delattr(tarfile, "data_filter")
    monkeypatch.delattr(tarfile, "tar_filter")
    later = tarfile.TarFile.extractall

    def former(self, path=".", members=None, *, numeric_owner=False):
        return later(self, path, members, numeric_owner=numeric_owner, filter="fully_trusted")

    monkeypatch.setattr(tarfile.TarFile, "extractall", former)


def test_an_archive_is_unpacked_by_the_oldest_python(emr, program, archive, monkeypatch):
    without_filters(monkeypatch)
    program(IMPORTS.format(module="one_module"))
    run = emr.start(parameters=packaged_job(emr.put("0123.tgz", archive)))
    assert ended(emr, run) == "SUCCESS"


def test_a_job_whose_start_fails_unexpectedly_has_failed_with_the_cause(emr, program, archive, monkeypatch):
    noted = []
    monkeypatch.setattr(threading, "excepthook", noted.append)
    monkeypatch.setattr("infra.local.emr.spark_jobs.unpack", lambda _archive: None)  # called with two arguments
    program("exit 0")
    run = emr.start(parameters=packaged_job(emr.put("0123.tgz", archive)))
    assert "Job failed to start: TypeError" in emr.until(run, "FAILED")["stateDetails"]
    emr.server.stop()  # ends, although the thread of the job died
    assert [one.exc_type for one in noted] == [TypeError]


def test_archives_are_parsed_as_spark_names_them():
    assert parsed("s3://b/a.tgz#package,s3://b/c/d.zip") == (("s3://b/a.tgz", "package"), ("s3://b/c/d.zip", "d.zip"))


@pytest.mark.long
@pytest.mark.spark
def test_the_rule_is_that_of_a_real_spark(emr, archive, tmp_path):
    """The archives are named so that only the end of the name differs; Spark itself unpacks them."""
    names = ["a.tgz", "b.tar.gz", "c.gz", "d.zip", "e.tar", "f.TGZ", "g.jar", "h.tgz.bin"]
    for name in names:
        if name.endswith((".zip", ".jar")):
            with zipfile.ZipFile(tmp_path / name, "w") as packed:
                packed.writestr("one_module.py", "VALUE = 1\n")
        elif name.endswith(".tar"):
            with tarfile.open(tmp_path / name, "w") as plain:
                plain.add(JOB, "one_module.py")
        else:
            shutil.copyfile(archive, tmp_path / name)
    # With another name of the setting the stand-in leaves the archives to Spark.
    parameters = "--archives " + ",".join(str(tmp_path / name) for name in names)
    run = emr.start("t-1-1", *names, parameters=parameters, entry_point=str(JOB))
    assert ended(emr, run) == "SUCCESS"
    ours = {}
    for name in names:
        unpack(tmp_path / name, tmp_path / "ours" / name) if unpacking(name) is not Unpacking.COPY else None
        ours[name] = "directory" if (tmp_path / "ours" / name).is_dir() else "file"
    assert json.loads(emr.stdout(run)) == ours
