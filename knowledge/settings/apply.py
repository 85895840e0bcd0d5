"""How run-time settings are applied: environment variables and lines of code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from knowledge.domain.observation import Scalar
from knowledge.settings.catalogue import shipped_settings
from knowledge.settings.model import JOINED_VARIABLES, SettingChoice


def environment_of(
    settings: Mapping[str, Scalar], backend: str, *, present: Mapping[str, str], libraries: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment variables that apply settings in a framework.

    Args:
        settings: Values by name of the setting; those that the framework does not have are left out.
        backend: Name of the framework.
        present: The environment that they are added to: lists such as ``XLA_FLAGS`` keep what they contain.
        libraries: Paths of installed shared libraries by file name; values that need another one are left out.
    """
    variables: dict[str, str] = {}
    for value, choice in _choices(settings, backend):
        library = next((libraries[name] for name in choice.library if name in libraries), "")
        if choice.library and not library:
            continue
        for variable, text in choice.environment.items():
            text = text.replace("{value}", value).replace("{library}", library)
            separator = JOINED_VARIABLES.get(variable)
            before = variables.get(variable, present.get(variable, "")) if separator else ""
            variables[variable] = f"{before}{separator}{text}" if before else text
    return variables


def code_of(settings: Mapping[str, Scalar], backend: str) -> tuple[str, ...]:
    """Return the lines of Python that apply settings in a framework, which its environment cannot apply.

    Args:
        settings: Values by name of the setting; those that the framework does not have are left out.
        backend: Name of the framework.
    """
    lines = (line.replace("{value}", value) for value, choice in _choices(settings, backend) for line in choice.code)
    return tuple(dict.fromkeys(lines))


def _choices(settings: Mapping[str, Scalar], backend: str) -> Iterator[tuple[str, SettingChoice]]:
    """Yield the choices in the order of the catalogue: a later one overrides variables of an earlier one."""
    order = list(shipped_settings())
    for name, value in sorted(settings.items(), key=lambda item: order.index(item[0])):
        framework = shipped_settings()[name].framework(backend)
        choice = framework.choice(value) if framework else None
        if choice is not None:
            yield str(value), choice
