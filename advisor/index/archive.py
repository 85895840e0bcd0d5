"""Core metadata from inside a wheel or an sdist; nothing is unpacked to disk or executed."""

from __future__ import annotations

import io
import tarfile
import zipfile

from advisor.index.transport import Transport, local_path
from knowledge.domain.errors import UnavailableError

_TAIL_BYTES = 128 * 1024


class ArchiveError(UnavailableError):
    """Raised when a distribution file is not a readable archive."""

    code = "distribution-archive"


def read_wheel_metadata(transport: Transport, url: str, filename: str) -> tuple[str, int | None]:
    """Return the ``METADATA`` of a wheel and, where known, the wheel's size in bytes.

    A remote wheel is read by ranged requests for the archive's directory and that one member; a server that does
    not serve ranges is asked for the whole file.

    Raises:
        UnavailableError: If the wheel cannot be read.
    """
    if (path := local_path(url)) is not None:
        try:
            with zipfile.ZipFile(path) as archive:
                return _member(archive, filename), path.stat().st_size
        except (OSError, zipfile.BadZipFile) as error:
            raise ArchiveError(f"`{path}` is not a readable wheel: {error}") from None
    from remotezip import RemoteZip, RemoteZipError

    transport.requests_made["ranged"] += 1
    try:
        with RemoteZip(
            url, initial_buffer_size=_TAIL_BYTES, session=transport.session, timeout=transport.timeout_seconds
        ) as archive:
            return _member(archive, filename), archive.size()
    except (RemoteZipError, OSError, zipfile.BadZipFile):
        body = transport.fetch(url)
        try:
            with zipfile.ZipFile(io.BytesIO(body)) as archive:
                return _member(archive, filename), len(body)
        except zipfile.BadZipFile as error:
            raise ArchiveError(f"`{filename}` from its index is not a readable wheel: {error}") from None


def read_unpacked_size(transport: Transport, url: str) -> int | None:
    """Return how many bytes the files of a wheel have once unpacked, or none where the server serves no ranges.

    Raises:
        UnavailableError: If a local wheel cannot be read.
    """
    from remotezip import RemoteZip, RemoteZipError

    try:
        if (path := local_path(url)) is not None:
            with zipfile.ZipFile(path) as local:
                return sum(entry.file_size for entry in local.infolist())
        transport.requests_made["ranged"] += 1
        with RemoteZip(
            url, initial_buffer_size=_TAIL_BYTES, session=transport.session, timeout=transport.timeout_seconds
        ) as archive:
            return int(sum(entry.file_size for entry in archive.infolist()))
    except (RemoteZipError, OSError, zipfile.BadZipFile):
        return None


def _member(archive: zipfile.ZipFile, filename: str) -> str:
    names = [n for n in archive.namelist() if n.count("/") == 1 and n.endswith(".dist-info/METADATA")]
    if len(names) != 1:
        raise ArchiveError(f"`{filename}` holds {len(names)} `.dist-info/METADATA` files, not one")
    return archive.read(names[0]).decode("utf-8", "replace")


def read_sdist_metadata(body: bytes, filename: str) -> str:
    """Return the ``PKG-INFO`` at the top of an sdist.

    Raises:
        ArchiveError: If the archive cannot be read or holds none.
    """
    try:
        if filename.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(body)) as archive:
                for name in archive.namelist():
                    if name.count("/") == 1 and name.endswith("/PKG-INFO"):
                        return archive.read(name).decode("utf-8", "replace")
        else:
            with tarfile.open(fileobj=io.BytesIO(body), mode="r:gz") as tar:
                for member in tar:
                    if member.name.count("/") == 1 and member.name.endswith("/PKG-INFO"):
                        extracted = tar.extractfile(member)
                        if extracted is not None:
                            return extracted.read().decode("utf-8", "replace")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise ArchiveError(f"`{filename}` is not a readable sdist: {error}") from None
    raise ArchiveError(f"`{filename}` holds no `PKG-INFO`")
