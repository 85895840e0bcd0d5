"""Lines of Python that apply run-time settings which environment variables cannot apply."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.lock.settings_table import locked_settings
from knowledge.catalogue.settings import ANY, Numerics

NUMERICS: Mapping[Numerics, str] = {
    "exact": "same results",
    "reordered": "results differ by rounding",
    "reduced": "reduced precision",
}
"""What a setting does to results, for people."""


def settings_code(values: Mapping[str, Mapping[str, int | str]]) -> str:
    """Return the lines of code for settings, each with a comment, by framework.

    Args:
        values: Values by framework and name of the setting.

    Returns:
        The lines; a sentence if no setting needs code.

    Raises:
        InputError: If the catalogue does not have a framework, setting or value.
    """
    settings = [setting for setting in locked_settings(values) if setting.code]
    lines: list[str] = []
    for framework in dict.fromkeys(setting.framework for setting in settings):
        lines += ["", f"# {'All frameworks' if framework == ANY else framework}"]
        for setting in settings:
            if setting.framework == framework:
                lines.append(f"# {setting.text}: {setting.setting.meaning} ({NUMERICS[setting.numerics]})")
                lines += setting.code
    return "\n".join(lines[1:]) if lines else "No recommended setting needs code."
