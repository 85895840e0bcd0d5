"""Reads a matrix file: which frameworks, versions, interpreters, settings and indicators a campaign is made of."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from knowledge.domain.errors import InputError
from knowledge.domain.observation import Scalar
from knowledge.domain.requirements import requirement_from
from knowledge.domain.suggestions import suggest
from knowledge.domain.toml import parse_toml
from pi_runners.matrix import IndicatorCase, choose_cases, expand_settings

VersionsOf = Callable[[Requirement, str], Sequence[Version]]
"""Returns the versions that an interpreter can install, newest first, for a requirement."""


class _MatrixTable(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, frozen=True)


_Scalars = list[Scalar] | Scalar


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
    settings: dict[str, _Scalars] | None = None
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
    settings: dict[str, _Scalars] = {}
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
        requirements: The framework pinned to a version, and what goes with it.
        python: Interpreter: a path or a version; empty for this one.
        cuda: CUDA runtime version that the stack must carry; none takes any.
        cudnn: Release of cuDNN that replaces the one the framework asks for; none replaces nothing.
        settings: Run-time switches.
        cases: What is run.
    """

    requirements: tuple[str, ...]
    python: str
    cuda: str | None = None
    cudnn: str | None = None
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    cases: tuple[IndicatorCase, ...]

    @property
    def label(self) -> str:
        """Readable name."""
        parts = [" ".join(self.requirements)]
        parts += [f"{name} {value}" for name, value in (("CUDA", self.cuda), ("cuDNN", self.cudnn)) if value]
        parts += [f"{name}={value}" for name, value in sorted(self.settings.items())]
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """What a matrix file says, read and checked; :meth:`combinations` expands it.

    Attributes:
        name: Name of the campaign.
        source: The file's text.
        content: What it says.
    """

    name: str
    source: str
    content: _File

    def combinations(self, versions_of: VersionsOf, pythons: Sequence[str], *, most: int) -> tuple[Combination, ...]:
        """Return every combination, in the order of the file: stacks, versions newest first, settings.

        Args:
            versions_of: The versions of a framework that an interpreter can install.
            pythons: Interpreters, where the file names none.
            most: Most runs of an indicator in a round that the matrix may expand to.

        Raises:
            InputError: If it expands to nothing, to more than ``most``, or names what does not exist.
        """
        found: list[Combination] = []
        runs = 0
        for stack in [*self.content.stack, *self.content.include]:
            included = stack in self.content.include
            for combination in self._expand(stack, versions_of, self.content.python or pythons):
                if not included and any(_matches(pattern, combination) for pattern in self.content.exclude):
                    continue
                found.append(combination)
                runs += len(combination.cases) * len(self.content.dtypes)
                if runs > most:
                    raise InputError(
                        f"matrix `{self.name}` expands to more than {most} indicator runs a round",
                        hint="narrow its versions, settings or indicators, or allow more with `--max-runs`",
                    )
        if not found:
            raise InputError(
                f"matrix `{self.name}` expands to nothing: no version of its frameworks is admitted and not excluded",
                hint="`advisor pi plan` tells what the index offers; look at `versions`, `python` and `[[exclude]]`",
            )
        return tuple(found)

    def _expand(self, stack: _Stack, versions_of: VersionsOf, pythons: Sequence[str]) -> Iterable[Combination]:
        wanted = Requirement(stack.framework)
        cases = _cases(stack.indicators or self.content.indicators, self.content.size)
        axes = self.content.settings if stack.settings is None else stack.settings
        settings = expand_settings({name: v if isinstance(v, list) else [v] for name, v in axes.items()}) or ({},)
        for python in pythons:
            versions = _selected(versions_of(wanted, python), stack.versions)
            for version, cuda, cudnn, switches in itertools.product(
                versions, _or_none(stack.cuda), _or_none(stack.cudnn), settings
            ):
                extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
                yield Combination(
                    requirements=(f"{wanted.name}{extras}=={version}", *stack.with_),
                    python=python,
                    cuda=cuda,
                    cudnn=cudnn,
                    settings=switches,
                    cases=cases,
                )


def _or_none(values: Sequence[str]) -> Sequence[str | None]:
    return values or (None,)


def read_matrix(path: Path) -> Matrix:
    """Read a matrix file.

    Raises:
        InputError: If it cannot be read, is no TOML, or says what is not understood; the message names the place.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content = _File.model_validate(parse_toml(text))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"`{path}` cannot be read: {error}") from None
    except ValidationError as error:
        raise _content_error(path, error) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{path}` is no TOML: {error}") from None
    excluded = [pattern.framework for pattern in content.exclude if pattern.framework is not None]
    for word in [*excluded, *(w for s in [*content.stack, *content.include] for w in (s.framework, *s.with_))]:
        try:
            requirement_from(word)
        except InvalidRequirement as error:
            raise InputError(f"`{path}`: `{word}` is no requirement: {str(error).splitlines()[0]}") from None
    for stack in [*content.stack, *content.include]:
        if stack.cudnn and not content.allow_cudnn_override:
            raise InputError(
                f"`{path}`: `cudnn` of `{stack.framework}` replaces the cuDNN that the framework asks for",
                hint="say `allow-cudnn-override = true` if that is what you want",
            )
    return Matrix(name=content.name, source=text, content=content)


def _content_error(path: Path, error: ValidationError) -> InputError:
    """Return the error for a matrix file that does not match its schema: an unknown key before anything else."""
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
    found: list[IndicatorCase] = []
    for entry in entries:
        if isinstance(entry, str):
            found += choose_cases([entry], size=size)
        else:
            found += choose_cases(
                [entry.name], size=entry.size or size, shapes=entry.shapes, parameters=entry.parameters
            )
    return tuple(found)


def _selected(versions: Sequence[Version], which: str) -> Sequence[Version]:
    """Keep all, the newest of each minor release, or the newest."""
    if which == "all":
        return versions
    newest: dict[tuple[int, int, str | None], Version] = {}
    for version in versions:
        newest.setdefault((version.major, version.minor, version.local), version)
    found = list(newest.values())
    return found[:1] if which == "newest" else found


def _matches(pattern: _Pattern, combination: Combination) -> bool:
    """Whether everything that a pattern names holds for a combination."""
    first = Requirement(combination.requirements[0])
    if pattern.framework is not None:
        wanted = Requirement(pattern.framework)
        version = next(iter(first.specifier)).version
        if _name(wanted) != _name(first) or not wanted.specifier.contains(version, prereleases=True):
            return False
    named = {"python": combination.python, "cuda": combination.cuda, "cudnn": combination.cudnn}
    asked = {"python": pattern.python, "cuda": pattern.cuda, "cudnn": pattern.cudnn}
    if any(value is not None and value != named[name] for name, value in asked.items()):
        return False
    return all(combination.settings.get(name) == value for name, value in pattern.settings.items())


def _name(requirement: Requirement) -> NormalizedName:
    return canonicalize_name(requirement.name)
