"""Saves time that a Python worker process of Spark spends outside of the functions that it runs."""

import sys
from zipimport import zipimporter


def forget_archives() -> None:
    """Forget the archives on `sys.path` that imports have read; the next import finds them again.

    Spark puts PySpark's archives and a jar of 5,000 entries there, and its worker calls `importlib.invalidate_caches`
    before each task. Python 3.11 then reads an archive's directory once for every package that was imported from it: a
    tenth of a second of CPU time per task. Python 3.12 waits for the next import (python/cpython#103200).
    """
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            sys.path_importer_cache.pop(path, None)
