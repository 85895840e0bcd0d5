"""Matrix files: the frameworks, versions, interpreters, settings and indicators that a campaign measures."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from knowledge.domain.documents import parse_toml, requirement_from
from knowledge.domain.errors import InputError, suggest
from knowledge.domain.observation import Scalar
from pi_runners.plan.matrix import IndicatorCase, choose_cases, expand_settings

VersionsOf = Callable[[Requirement, str], Sequence[Version]]
"""Returns the versions that an interpreter can install, newest first, for a requirement."""


class _MatrixTable(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, frozen=True)


_Scalars = list[Scalar] | Scalar
_Settings = dict[str, _Scalars] | list[dict[str, _Scalars]]
"""Values of settings, all combined; or a list of such tables, each measured for itself."""


class _Indicator(_MatrixTable):
    name: str
    size: str | None = None
    shapes: str | None = None
    parameters: dict[str, Any] | None = None


class _Stack(_MatrixTable):
    framework: str
    versions: Literal["all", "minor", "newest"] = "minor"
    with_: Annotated[list[str], Field(alias="with")] = []
    cuda: list[str] = []
    cudnn: list[str] = []
    settings: _Settings | None = None
    indicators: list[str | _Indicator] | None = None


class _Pattern(_MatrixTable):
    framework: str | None = None
    python: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    settings: dict[str, Scalar] = {}


class _File(_MatrixTable):
    name: str
    indicators: list[str | _Indicator]
    stack: list[_Stack]
    include: list[_Stack] = []
    exclude: list[_Pattern] = []
    settings: _Settings = {}
    python: list[str] = []
    dtypes: list[str] = ["float32"]
    size: str = "small"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    rounds: Annotated[int, Field(ge=1)] = 8
    samples: Annotated[int, Field(ge=2)] = 7
    min_time: Annotated[float, Field(alias="min-time", ge=0.001)] = 0.05
    timeout: Annotated[float, Field(ge=1)] = 600.0
    memory_limit_gigabytes: Annotated[float | None, Field(alias="memory-limit-gigabytes", gt=0)] = None
    allow_cudnn_override: Annotated[bool, Field(alias="allow-cudnn-override")] = False


_TABLES: Mapping[str, type[_MatrixTable]] = {
    "stack": _Stack,
    "include": _Stack,
    "exclude": _Pattern,
    "indicators": _Indicator,
}
"""Schema of each table of the file, by its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One stack to lock and measure, with one combination of settings.

    Attributes:
        requirements: The framework pinned to a version, then the additional requirements of its ``with`` key.
        version: That version; ``None`` if the index has none that the interpreter can install: there is then no case.
        python: Path or version of the interpreter; empty for the current one.
        cuda: CUDA runtime version that the stack must contain; ``None`` for any.
        cudnn: Release of cuDNN that replaces the one the framework requires; ``None`` to replace nothing.
        settings: Run-time settings.
        cases: Indicator cases to run.
    """

    requirements: tuple[str, ...]
    version: Version | None
    python: str
    cuda: str | None = None
    cudnn: str | None = None
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    cases: tuple[IndicatorCase, ...]

    @property
    def label(self) -> str:
        """Return a readable name."""
        parts = [" ".join(self.requirements)]
        parts += [f"{name} {value}" for name, value in (("CUDA", self.cuda), ("cuDNN", self.cudnn)) if value]
        parts += [f"{name}={value}" for name, value in sorted(self.settings.items())]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A valid matrix file, with the name of its campaign and its text; :meth:`combinations` expands it."""

    name: str
    source: str
    content: _File

    def combinations(
        self, versions_of: VersionsOf, pythons: Sequence[str], *, max_runs: int
    ) -> tuple[Combination, ...]:
        """Return every combination, in the order of the file: stacks, versions newest first, settings.

        Args:
            versions_of: Returns the versions of a framework that an interpreter can install.
            pythons: Interpreters to use if the file names none.
            max_runs: Maximum number of indicator runs per round.

        Raises:
            InputError: If the matrix expands to no combination or to more than ``max_runs`` runs per round, or an
                indicator or setting is not valid.
        """
        combinations: list[Combination] = []
        runs = 0
        for stack in [*self.content.stack, *self.content.include]:
            included = stack in self.content.include
            for combination in self._expand(stack, versions_of, self.content.python or pythons):
                if not included and any(_matches(pattern, combination) for pattern in self.content.exclude):
                    continue
                combinations.append(combination)
                runs += len(combination.cases) * len(self.content.dtypes)
                if runs > max_runs:
                    raise InputError(
                        f"matrix `{self.name}` expands to more than {max_runs} indicator runs per round",
                        hint="reduce its versions, settings or indicators, or raise the limit with `--max-runs`",
                    )
        if all(combination.version is None for combination in combinations):
            raise InputError(
                f"matrix `{self.name}` expands to no combination: the index offers no matching version of its "
                "frameworks, or all are excluded",
                hint="check `framework`, `python` and `[[exclude]]`",
            )
        return tuple(combinations)

    def _expand(self, stack: _Stack, versions_of: VersionsOf, pythons: Sequence[str]) -> Iterable[Combination]:
        framework = Requirement(stack.framework)
        cases = _cases(stack.indicators or self.content.indicators, self.content.size)
        settings = _combinations(self.content.settings if stack.settings is None else stack.settings)
        for python in pythons:
            versions = _select_versions(versions_of(framework, python), stack.versions)
            if not versions:
                yield Combination(requirements=(stack.framework, *stack.with_), version=None, python=python, cases=())
            for version, cuda, cudnn, values in itertools.product(
                versions, stack.cuda or (None,), stack.cudnn or (None,), settings
            ):
                extras = f"[{','.join(sorted(framework.extras))}]" if framework.extras else ""
                yield Combination(
                    requirements=(f"{framework.name}{extras}=={version}", *stack.with_),
                    version=version,
                    python=python,
                    cuda=cuda,
                    cudnn=cudnn,
                    settings=values,
                    cases=cases,
                )


def _combinations(settings: _Settings) -> Sequence[Mapping[str, Scalar]]:
    """Return every combination of the values in a table, and those of each table in a list."""
    tables = settings if isinstance(settings, list) else [settings]
    return [
        combination
        for table in tables
        for combination in expand_settings({name: v if isinstance(v, list) else [v] for name, v in table.items()})
    ] or [{}]


def read_matrix(path: Path) -> Matrix:
    """Read a matrix file.

    Raises:
        InputError: If the file cannot be read, is not valid TOML, or does not match the schema; the message names the
            key.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = _File.model_validate(parse_toml(text))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"`{path}` cannot be read: {error}") from None
    except ValidationError as error:
        raise _content_error(path, error) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{path}` is not valid TOML: {error}") from None
    excluded = [pattern.framework for pattern in content.exclude if pattern.framework is not None]
    for word in [*excluded, *(w for s in [*content.stack, *content.include] for w in (s.framework, *s.with_))]:
        try:
            requirement_from(word)
        except InvalidRequirement as error:
            raise InputError(f"`{path}`: `{word}` is not a valid requirement: {str(error).splitlines()[0]}") from None
    for stack in [*content.stack, *content.include]:
        if stack.cudnn and not content.allow_cudnn_override:
            raise InputError(
                f"`{path}`: `cudnn` of `{stack.framework}` replaces the cuDNN that the framework requires",
                hint="to allow that, set `allow-cudnn-override = true`",
            )
    return Matrix(name=content.name, source=text, content=content)


def _content_error(path: Path, error: ValidationError) -> InputError:
    """Return the error for a matrix file that does not match its schema; an unknown key takes precedence."""
    problems = error.errors()
    unknown = next((problem for problem in problems if problem["type"] == "extra_forbidden"), None)
    location = (unknown or problems[0])["loc"]
    parts = [str(part) for part in location if not str(part).startswith(("list[", "function", "_"))]
    if unknown is None:
        return InputError(
            f"`{path}`: `{'.'.join(parts)}`: {problems[0]['msg'].lower()}",
            hint="docs/reference/matrix-files.md describes every key",
        )
    *table, key = parts
    models = [_TABLES[part] for part in table if part in _TABLES]
    fields = (models[-1] if models else _File).model_fields
    place = f"`{path}`: `{'.'.join(table)}`" if table else f"`{path}`"
    return InputError(
        f"{place} has no key `{key}`",
        hint=suggest(key, [field.alias or name for name, field in fields.items()]),
    )


def _cases(entries: Sequence[str | _Indicator], size: str) -> tuple[IndicatorCase, ...]:
    tables = [_Indicator(name=entry) if isinstance(entry, str) else entry for entry in entries]
    return tuple(
        case
        for table in tables
        for case in choose_cases(
            [table.name], size=table.size or size, shapes=table.shapes, parameters=table.parameters
        )
    )


def _select_versions(versions: Sequence[Version], selection: str) -> Sequence[Version]:
    """Return all versions, the newest of each minor release, or the newest only."""
    if selection == "all":
        return versions
    newest: dict[tuple[int, int, str | None], Version] = {}
    for version in versions:
        newest.setdefault((version.major, version.minor, version.local), version)
    selected = list(newest.values())
    return selected[:1] if selection == "newest" else selected


def _matches(pattern: _Pattern, combination: Combination) -> bool:
    """Return whether a combination has every value that a pattern names."""
    if pattern.framework is not None:
        framework, version = Requirement(pattern.framework), combination.version
        measured = Requirement(combination.requirements[0])
        is_same = canonicalize_name(framework.name) == canonicalize_name(measured.name)
        is_admitted = framework.specifier.contains(version, prereleases=True) if version else not framework.specifier
        if not is_same or not is_admitted:
            return False
    for key in ("python", "cuda", "cudnn"):
        expected = getattr(pattern, key)
        if expected is not None and expected != getattr(combination, key):
            return False
    return all(combination.settings.get(name) == value for name, value in pattern.settings.items())
