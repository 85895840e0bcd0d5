"""The present lock of a project, for one target."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from advisor.api.context import TargetContext

if TYPE_CHECKING:
    from advisor.locks.lock import Lock

logger = logging.getLogger(__name__)


def read_current_lock(context: TargetContext) -> Lock | None:
    """Return the present lock; none if there is none, or if one that nobody named is damaged.

    Raises:
        InputError: If a named lock cannot be read.
    """
    from advisor.locks.current import read_current
    from knowledge.domain.errors import InputError

    files = context.files
    lock_path = files.current or (str(context.lock) if context.lock and context.lock.exists() else None)
    try:
        return read_current(lock_path, files.directory, context.target)
    except InputError as error:
        if lock_path is not None:
            raise
        logger.warning("the stack is not compared with the current one: %s", error.message)
        return None
