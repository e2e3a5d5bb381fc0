"""The content of a package besides its dependencies, and archives with the same bytes for the same content."""

import gzip
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Collection, Iterable
from email.message import Message
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from typing import Final, cast

from infra.environment.context import ROOT
from infra.package import description
from infra.package.parts import NOT_DEPLOYED, ROOTS

_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_FILE_MODE: Final = 0o100644
"""Lambda and Spark read modules and load libraries; neither runs a file."""


def files_below(tree: Path) -> list[tuple[str, Path]]:
    return sorted((path.relative_to(tree).as_posix(), path) for path in tree.rglob("*") if path.is_file())


def write_zip(tree: Path, archive: Path) -> None:
    """Write a directory's content as a zip, for Lambda."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, path in files_below(tree):
            entry = zipfile.ZipInfo(name, _ZIP_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = _UNIX
            entry.external_attr = _FILE_MODE << 16
            file.writestr(entry, path.read_bytes())


def write_tar(tree: Path, archive: Path) -> None:
    """Write a directory's content as a compressed tar, for `spark.archives`."""
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as file,
    ):
        for name, path in files_below(tree):
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            entry.mode = _FILE_MODE & 0o777
            with path.open("rb") as content:
                file.addfile(entry, content)


AWS_SERVICES: Final = frozenset(
    {"dynamodb", "emr-serverless", "events", "s3", "secretsmanager", "sqs", "stepfunctions", "sts", "xray"}
)
"""The services that functions and jobs call, and those that credentials (`sts`) and tracing (`xray`) need."""
LICENCES: Final = "LICENSES.txt"
_UNUSED: Final = (
    # The CFFI backend replaces the compiled one where that cannot be loaded; here it always can.
    "zstandard/_cffi*.so",
    "zstandard/backend_cffi*",
    "zstandard/backend_rust*.so",
    # cryptography needs of CFFI the compiled _cffi_backend alone; the rest builds such modules.
    *("cffi", "pycparser", "pycparser-*.dist-info"),
    # For type checkers, compilers and test runs alone.
    *("**/*.pyi", "*-stubs", "pydantic/mypy.*", "pydantic/v1/mypy.*", "pydantic/v1/_hypothesis_plugin.*"),
    *("anyio/pytest_plugin.*", "wrapt/*.c"),
    "boto3/examples",
    # httpx brings certifi, whose certificates botocore prefers to its own.
    "botocore/cacert.pem",
    # A page for browsers; the service has one of its own.
    "aws_lambda_powertools/event_handler/openapi/swagger_ui/*.js",
    "aws_lambda_powertools/event_handler/openapi/swagger_ui/*.css",
    # Time zones come from tzdata, whose compiled files alone `zoneinfo` reads (Python's "Data sources" of zoneinfo).
    "dateutil/zoneinfo/*.tar.gz",
    *("tzdata/zoneinfo/tzdata.zi", "tzdata/zoneinfo/*.tab", "tzdata/zoneinfo/leapseconds"),
)
_ELF64: Final = b"\x7fELF\x02\x01"
"""How a library for 64-bit little-endian processors begins."""
_SHT_NOBITS, _SHF_ALLOC = 8, 2
_NOTES: Final = ("bin", *(f"*.dist-info/{name}" for name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")))
"""What pip writes: programs, which nothing runs, and notes that name the machine's paths and files not shipped."""
_SOURCES_ONLY: Final = shutil.ignore_patterns("__pycache__", "*.pyc")


def add_sources(package: Path) -> None:
    """Copy the service's sources next to its dependencies, without NOT_DEPLOYED, and build the API's description."""
    for root in ROOTS:
        shutil.copytree(ROOT / "functions" / root, package / root, ignore=_SOURCES_ONLY)
    for name in NOT_DEPLOYED:
        left_out = package / "delegation" / name
        shutil.rmtree(left_out) if left_out.is_dir() else left_out.unlink()
    description.build(package)


def remove_unused(package: Path, services: Collection[str] = AWS_SERVICES) -> None:
    """Remove what the service's dependencies bring and it does not use, and botocore's descriptions of other services.

    Before an author's requirements are added, which may need a part of it.
    """
    _remove(package, _UNUSED)
    for data in (package / "botocore" / "data", package / "boto3" / "data"):
        for path in data.iterdir() if data.is_dir() else ():
            if path.is_dir() and path.name not in services:
                shutil.rmtree(path)


def remove_notes(package: Path) -> None:
    """Remove what pip wrote for an installation on this machine."""
    _remove(package, _NOTES)


def remove_symbols(package: Path) -> None:
    """Overwrite with zeros what debuggers alone read of compiled modules: zeros compress to nothing.

    What a processor loads has the flag SHF_ALLOC (System V ABI, "Sections"); the names of sections stay, too.
    """
    for library in sorted(package.glob("**/*.so")):
        data = bytearray(library.read_bytes())
        if data[:6] != _ELF64:
            continue
        (table,) = struct.unpack_from("<Q", data, 40)
        size, count, names = struct.unpack_from("<HHH", data, 58)
        for number in range(count):
            at = table + number * size
            kind, flags, _, start, length = struct.unpack_from("<4xIQQQQ", data, at)
            if kind != _SHT_NOBITS and not flags & _SHF_ALLOC and number != names:
                data[start : start + length] = bytes(length)
        library.write_bytes(data)


def _remove(package: Path, patterns: Iterable[str]) -> None:
    for pattern in patterns:
        for path in list(package.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def merge(added: Path, package: Path) -> None:
    """Move what an author's modules need into the package, which keeps what it has."""
    for path in sorted(added.iterdir()) if added.is_dir() else ():
        if not (package / path.name).exists():
            path.rename(package / path.name)


def unusable(module: Path) -> str | None:
    """Return why a path cannot be added as a module, None if it can."""
    if module.is_dir():
        if not (module / "__init__.py").is_file():
            return "is a directory without __init__.py; name the package itself"
    elif not module.is_file() or module.suffix != ".py":
        return "is neither a package's directory nor a .py file"
    name = module.resolve().stem
    return "would replace the service's own package" if name in ROOTS else None


def add_modules(package: Path, modules: Iterable[Path]) -> None:
    """Copy an author's packages and modules next to the service's sources; FileExistsError for a name that is taken."""
    for module in (path.resolve() for path in modules):
        target = package / module.name
        if target.exists():
            raise FileExistsError(f"{module.name} is already in the package: a dependency has this name")
        if module.is_dir():
            shutil.copytree(module, target, ignore=_SOURCES_ONLY)
        else:
            shutil.copyfile(module, target)


def add_licences(package: Path) -> None:
    """Write the licence of the service, a list of its dependencies' licences, and all their notices."""
    shutil.copyfile(ROOT / "LICENSE", package / "LICENSE")
    folders = sorted(package.glob("*.dist-info"), key=lambda path: path.name.lower())
    lines = [_line(folder, PathDistribution(folder)) for folder in folders]
    head = "Polaris Delegation Service: Apache-2.0 (LICENSE). Its dependencies in this package:\n\n"
    (package / LICENCES).write_text(head + "".join(lines), encoding="utf-8")
    notices = [f"Polaris Delegation Service\n\nThis package contains other works; {LICENCES} lists them.\n"]
    for notice in sorted(package.glob("*.dist-info/**/NOTICE*")):
        owner = notice.relative_to(package).parts[0].removesuffix(".dist-info")
        notices.append(f"\n---- {owner} ----\n\n{notice.read_text(encoding='utf-8').strip()}\n")
    (package / "NOTICE").write_text("".join(notices), encoding="utf-8")


def licence(distribution: Distribution) -> str:
    """Return a distribution's licence: the expression, else the classifiers, else the first line of the text."""
    # The class behind the protocol, which has no `get` in Python 3.11.
    metadata = cast("Message", distribution.metadata)
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classified = [
        classifier for classifier in metadata.get_all("Classifier") or [] if classifier.startswith("License :: ")
    ]
    names = [classifier.rpartition(" :: ")[2] for classifier in classified]
    text = str(metadata.get("License") or "").strip().partition("\n")[0]
    return " OR ".join(names) or text or "not stated"


def _line(folder: Path, distribution: Distribution) -> str:
    """Return a line with a distribution's name, version and licence, and where the licence's texts are."""
    texts = [*sorted(folder.glob("**/LICEN[CS]E*")), *sorted(folder.glob("**/COPYING*"))]
    where = ", ".join(str(text.relative_to(folder.parent)) for text in texts if text.is_file())
    return f"{distribution.name} {distribution.version}: {licence(distribution)}{f' ({where})' if where else ''}\n"
