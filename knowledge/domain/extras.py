"""Optional libraries: the extras of the distribution."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from knowledge.domain.errors import InputError


class MissingExtraError(InputError):
    """Raised when a feature needs a library that is not installed."""

    code = "missing-extra"


@contextmanager
def needs_extra(extra: str, feature: str) -> Iterator[None]:
    """Import the libraries of an extra within this context.

    Args:
        extra: Name of the extra in ``seshat-advisor[...]``.
        feature: What needs it, as the beginning of a sentence.

    Raises:
        MissingExtraError: If a library is not installed.
    """
    try:
        yield
    except ImportError as error:
        library = (error.name or "").partition(".")[0]
        missing = f"the library `{library}`, which is not installed" if library else f"a library: {error}"
        raise MissingExtraError(
            f"{feature} needs {missing}",
            hint=f"install it with `pip install 'seshat-advisor[{extra}]'`",
        ) from None
