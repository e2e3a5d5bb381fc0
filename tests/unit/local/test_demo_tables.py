"""The demo's tables are written on a machine that is busy with starting everything else."""

from pyiceberg.io.pyarrow import PyArrowFileIO

from infra.local.demo import tables


def test_a_slow_store_is_waited_for(monkeypatch):
    """pyarrow stops waiting after three seconds by default, and ended the demo of a busy machine."""
    given = {}
    monkeypatch.setattr("pyarrow.fs.S3FileSystem", lambda **options: given.update(options))
    PyArrowFileIO({"s3.endpoint": "http://127.0.0.1:1", **tables.PATIENCE}).fs_by_scheme("s3", "warehouse")
    assert min(given["connect_timeout"], given["request_timeout"]) >= 60
