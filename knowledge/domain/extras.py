"""Optional libraries: the extras of the distribution, and the commands that install them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from knowledge.domain.errors import InputError, without_secrets

DISTRIBUTION = "seshat-advisor"


class MissingExtraError(InputError):
    """Raised when a feature needs an extra that is not installed.

    Its hint has the commands for pip, pipx and uv tool.
    """

    code = "missing-extra"

    def __init__(self, extra: str, message: str) -> None:
        """Create the error of an extra; ``message`` says what needs which library or program."""
        required = f"{DISTRIBUTION}[{extra}]"
        # pip takes the installed program for the requirement; `uv tool` installs it again, from where it came.
        address = _address()
        super().__init__(
            message,
            hint=f"install the extra `{extra}` with `pip install '{required}'`, or, if pipx or uv installed this "
            f"program, with `pipx runpip {DISTRIBUTION} install '{required}'` or "
            f"`uv tool install '{required}{address and f' @ {address}'}'`",
        )


def _address() -> str:
    """Return the address that this program was installed from; empty for a package index.

    Source: https://packaging.python.org/en/latest/specifications/direct-url/
    """
    from importlib.metadata import PackageNotFoundError, distribution  # Slow to import.

    try:
        source = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return ""
    prefix = f"{source['vcs_info']['vcs']}+" if "vcs_info" in source else ""
    return without_secrets(f"{prefix}{source.get('url', '')}")


@contextmanager
def needs_extra(extra: str, feature: str) -> Iterator[None]:
    """Import the libraries of an extra within this context; ``feature`` needs it, and begins the message.

    Raises:
        MissingExtraError: If a library is not installed.
    """
    try:
        yield
    except ImportError as error:
        library = (error.name or "").partition(".")[0]
        missing = f"the library `{library}`, which is not installed" if library else f"a library: {error}"
        raise MissingExtraError(extra, f"{feature} needs {missing}") from None
