"""The frameworks that can be measured and profiled: what the file `framework.toml` in the folder of each says.

The folders are those in the packages of :data:`knowledge.domain.framework_packages`, to which ``pi_runners`` adds its
own. Their modules are not imported here. A new framework is a new folder.
"""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from knowledge.domain import framework_packages
from knowledge.domain.errors import InputError

_LAST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework, or a library that prepares input.

    Attributes:
        name: Name of its folder, by which observations and settings name it, such as ``torch``.
        title: Its own name, such as ``PyTorch``.
        folder: The folder.
        package: Name of the package in which the folder is, such as ``pi_runners.frameworks``.
        position: Position in lists.
        is_input_library: Whether it only prepares input: it is measured, but does not count for the speed of a stack.
        distributions: Distributions that contain it, the usual one first.
        same_on_processors: Distributions with the one that is the same release without support for accelerators.
        devices: Devices that it supports: ``cpu``, ``cuda``.
        abilities: What indicators may need of it (:mod:`pi_runners.indicators`): a way to compute such as ``backward``,
            or an operation of its backend (:mod:`pi_runners.harness.contract`) such as ``matmul``.
        algorithms: How it computes an operation for which it has no function of its own, by operation.
        extra_copies: Further arrays in memory, as multiples of ``backward_images`` or ``model_weights``.
        published: Its names in published tables, as regular expressions, and that of its `container`.
        references: Notes for reports about values of settings that published effects are over, such as
            ``precision=tf32``.
        profile: How programs are profiled that use it: `hooks` by imported module, `packages` whose versions are
            reported; how its traces are recognised (`files`, `categories` of events, names of `processes`), and the
            framework whose folder reads them (`reader`), if it is not its own.
    """

    name: str
    title: str
    folder: Path
    package: str
    position: int = _LAST
    is_input_library: bool = False
    distributions: tuple[str, ...]
    same_on_processors: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ("cpu", "cuda")
    abilities: frozenset[str] = frozenset()
    algorithms: Mapping[str, str] = field(default_factory=dict)
    extra_copies: Mapping[str, float] = field(default_factory=dict)
    published: Mapping[str, str] = field(default_factory=dict)
    references: Mapping[str, str] = field(default_factory=dict)
    profile: Mapping[str, Any] = field(default_factory=dict)

    def document(self, name: str) -> dict[str, Any]:
        """Return the content of a further file of the folder, such as ``settings``; empty if there is none."""
        path = self.folder / f"{name}.toml"
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


@cache
def frameworks() -> Mapping[str, Framework]:
    """Return the frameworks by name; input libraries come last.

    Raises:
        InputError: If a package does not exist, two frameworks have the same name, or a file is malformed, lacks a key
            or has an unknown one.
        LookupError: If no package has added its frameworks: `import pi_runners` adds those of this program.
    """
    if not framework_packages:
        raise LookupError("no package has added its frameworks to `knowledge.domain.framework_packages`")
    paths = {path: p for p in sorted(framework_packages) for at in _folders(p) for path in at.glob("*/framework.toml")}
    by_name: dict[str, Framework] = {}
    for framework in (_read(path, package) for path, package in paths.items()):
        other = by_name.setdefault(framework.name, framework)
        if other is not framework:
            both = f"`{other.folder}` and `{framework.folder}`"
            raise InputError(f"two frameworks have the name `{other.name}`: {both}", hint="rename one of the folders")
    for framework in by_name.values():
        reader = framework.profile.get("reader", framework.name)
        if reader not in [*by_name]:  # A list, because the file may contain what has no hash.
            raise _error(framework.folder / "framework.toml", f"`profile.reader` is `{reader}`, which is no framework")
    return dict(sorted(by_name.items(), key=lambda item: (item[1].is_input_library, item[1].position, item[0])))


def able_frameworks(ability: str) -> tuple[str, ...]:
    """Return the names of the frameworks with an ability, sorted."""
    return tuple(sorted(framework.name for framework in frameworks().values() if ability in framework.abilities))


def _folders(package: str) -> Iterator[Path]:
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError as error:
        if not f"{package}.".startswith(f"{error.name}."):
            raise
        spec = None
    if spec is None or spec.submodule_search_locations is None:
        raise InputError(f"there is no package `{package}` of frameworks", hint="install it, or correct its name")
    yield from map(Path, spec.submodule_search_locations)


def _error(path: Path, problem: object) -> InputError:
    return InputError(f"the framework `{path.parent.name}`, `{path}`: {problem}")


def _read(path: Path, package: str) -> Framework:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        lists = {name: tuple(value) for name, value in document.items() if isinstance(value, list)}
        abilities = frozenset(lists.pop("abilities", ()))
        values = {**document, **lists, "abilities": abilities}
        return Framework(name=path.parent.name, folder=path.parent, package=package, **values)
    except (TypeError, ValueError) as error:
        raise _error(path, error) from None


class _Distributions(Mapping[str, str]):
    """The framework of each distribution."""

    def __init__(self, *, with_input_libraries: bool) -> None:
        self._with_input_libraries = with_input_libraries

    def _names(self) -> dict[str, str]:
        listed = [f for f in frameworks().values() if self._with_input_libraries or not f.is_input_library]
        return {distribution: framework.name for framework in listed for distribution in framework.distributions}

    def __getitem__(self, distribution: str) -> str:
        return self._names()[distribution]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())


FRAMEWORKS: Mapping[str, str] = _Distributions(with_input_libraries=False)
"""Framework of each distribution that contains one."""
MEASURED: Mapping[str, str] = _Distributions(with_input_libraries=True)
"""Framework or input library of each distribution that can be measured."""


def runs_on_processors_only(distribution: str) -> bool:
    """Return whether a distribution contains a framework that supports no accelerator."""
    return distribution in FRAMEWORKS and "cuda" not in frameworks()[FRAMEWORKS[distribution]].devices
