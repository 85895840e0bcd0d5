"""Writes the program that runs inside measured environments: one archive, whatever packages are installed there."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import io
import marshal
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from knowledge.domain.frameworks import frameworks
from knowledge.domain.shared_files import write_atomically

_ROOT = Path(__file__).parents[1]
_MAIN = b"import sys\nfrom pi_runners.harness.worker import main\nsys.exit(main())\n"


def write_program(directory: Path) -> Path:
    """Write the program that runs inside measured environments as one archive in a directory, and return its path.

    The archive contains the harness, the indicators and the backends, also as byte code for interpreters of this one's
    version, which would otherwise be compiled in each process. Nothing else of this interpreter's packages is visible
    in the measured environment.
    """
    sources = dict(_sources())
    files = {"__main__.py": _MAIN, "pi_runners/__init__.py": b""}
    files.update((name, path.read_bytes()) for name, path in sources.items())
    digest = hashlib.sha256(importlib.util.MAGIC_NUMBER)
    for name, body in sorted(files.items()):
        digest.update(f"{name} {len(body)}\n".encode() + body)
    path = directory / f"harness-{digest.hexdigest()[:12]}.pyz"
    if not path.exists():
        # Another version of this program may use the same directory: each version has its own archive.
        directory.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            for name, body in files.items():
                archive.writestr(name, body)
                if name in sources and name.endswith(".py"):
                    archive.writestr(f"{name}c", _byte_code(sources[name], body, path / name))
        write_atomically(path, content.getvalue())
    return path


def _sources() -> Iterator[tuple[str, Path]]:
    """Yield the names in the archive, and the files, of what runs inside measured environments."""
    files = [path for folder in ("harness", "hooks", "indicators", "models") for path in (_ROOT / folder).rglob("*")]
    for path in sorted([*files, *(_ROOT / "frameworks").glob("*.py")]):
        if path.suffix in (".py", ".gz", ".json") and path.name != "reference.py":
            yield f"pi_runners/{path.relative_to(_ROOT).as_posix()}", path
    for framework in frameworks().values():
        for path in sorted(framework.folder.glob("*.py")):
            yield f"pi_runners/frameworks/{framework.name}/{path.name}", path


def _byte_code(file: Path, source: bytes, path: Path) -> bytes:
    """Return a module's byte code, which an interpreter of another version ignores; tracebacks show ``path``."""
    # The loader reads the byte code that this interpreter has written, if it has.
    code = importlib.machinery.SourceFileLoader(file.stem, str(file)).get_code(file.stem)
    assert code is not None
    # PEP 552: the hash of the source is not checked, because the archive never changes.
    header = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
    return header + marshal.dumps(_with_path(code, str(path)))


def _with_path(code: CodeType, path: str) -> CodeType:
    """Return byte code of which tracebacks show another path."""
    parts = (_with_path(part, path) if isinstance(part, CodeType) else part for part in code.co_consts)
    return code.replace(co_filename=path, co_consts=tuple(parts))
