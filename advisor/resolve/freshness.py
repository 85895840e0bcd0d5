"""Freshness of versions: how far each is behind the newest one of its package."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from packaging.version import Version

from advisor.resolve.problem import Candidate

_HOUR = 3600.0
HOURS_A_YEAR = 365.25 * 24
HOURS_PER_RELEASE = 30 * 24
"""Age that one release counts as, a month, if the index gives no upload times."""


def hours_behind(offered: Sequence[Candidate]) -> dict[Version, int]:
    """Return how many hours each version of a package is behind the newest, by upload time.

    An older version never counts as fresher than a newer one, even if it is a later patch of an older series, and
    consecutive versions differ by at least an hour. The builds of a release are equally fresh: its time is that of the
    first upload, because some indexes give no times. If no build of some release has one, a release counts as a month.

    Args:
        offered: Candidates, newest first.
    """
    uploads: dict[str, float | None] = {}
    for candidate in offered:
        release, uploaded = candidate.version.public, candidate.file.uploaded
        times = [time for time in (uploads.get(release), _timestamp(uploaded)) if time is not None]
        uploads[release] = min(times, default=None)
    has_uploads = None not in uploads.values()
    newest = next(iter(uploads.values()), None) or 0.0
    behind: dict[str, int] = {}
    hours = 0
    for place, (release, upload) in enumerate(uploads.items()):
        if not has_uploads:
            hours = place * HOURS_PER_RELEASE
        elif place:
            hours = max(hours + 1, round((newest - (upload or 0.0)) / _HOUR))
        behind[release] = hours
    return {candidate.version: behind[candidate.version.public] for candidate in offered}


def _timestamp(uploaded: str | None) -> float | None:
    return datetime.fromisoformat(uploaded).timestamp() if uploaded else None
