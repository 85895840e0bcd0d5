"""The stacks that a bisection compares: of a lock, of the lock in a commit, or the newest one of a day."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from advisor.api.measurements.benchmark import MachineSetup
from advisor.api.option import read_moment
from advisor.api.options import ProjectOptions
from advisor.domain.requirement import RootRequirement
from advisor.domain.target import Target
from advisor.experiment.stack_pair import Side, StackEnd, StackPair
from advisor.gate.base.commit import export_commit
from advisor.gate.base.git_objects import commit_of
from advisor.index.addresses import printable
from advisor.locks.current import locked_python, read_current
from advisor.locks.lock import Lock, LockedVersion
from advisor.locks.registry import own_lock, read_lock
from advisor.locks.settings_table import read_settings
from advisor.project.formats.pyproject import read_identity
from advisor.resolve.candidates.compatible_files import CompatibleFileReader
from advisor.resolve.candidates.index import IndexCandidates
from advisor.resolve.candidates.problem import Candidate, CandidateStack, Dependency, NoStackError, ResolutionProblem
from advisor.resolve.optimum.baseline import resolve_baseline
from knowledge.catalogue.settings import ANY
from knowledge.domain.errors import InputError
from knowledge.domain.observation import Scalar

logger = logging.getLogger(__name__)

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?")
_HINT = "name a lock file, a commit of the project, or a date such as `2026-01-31`"


@dataclass
class StackEnds:
    """Reads the stacks for one project on this machine, and compares two of them.

    Attributes:
        options: The project's options, as the user gave them.
        setup: The project, prepared for this machine.
    """

    options: ProjectOptions
    setup: MachineSetup
    _sources: dict[str, IndexCandidates] = field(default_factory=dict, init=False)

    def read(self, text: str, option: str) -> StackEnd:
        """Return the stack that a user named: a file, a date or a commit.

        Raises:
            InputError: If it is none of them, or cannot be read or measured.
            NoStackError: If the project has no stack on that day.
            UnavailableError: If an index cannot be read.
        """
        path, directory = Path(text), self.options.files.directory
        if path.is_file():
            return self._of_lock(path, str(path))
        if _DATE.fullmatch(text):
            return self._of_day(text, option)
        if commit_of(text, directory) is None:
            raise InputError(f"`{option} {text}` is neither a file, a date nor a commit", hint=_HINT)
        with export_commit(text, directory, warn=logger.warning) as exported:
            name = own_lock(directory)
            lock = exported / name.name if name else None
            if lock is None or not lock.is_file():
                current = read_current(None, exported, self.setup.context.target, names_unpinned=True)
                lock = current.path if current else None
            if lock is None:
                raise InputError(f"the commit `{text}` has no lock of the project", hint="name a lock file or a date")
            return self._of_lock(lock, f"{lock.name} at {text}")

    def current(self) -> StackEnd:
        """Return the stack of the project's own lock.

        Raises:
            InputError: If there is none.
        """
        lock = self.setup.context.lock or own_lock(self.options.files.directory)
        if lock is None:
            raise InputError("the project has no lock that could be the bad one", hint="name one with `--bad`")
        return self._of_lock(lock, str(lock))

    def pair(self, good: StackEnd, bad: StackEnd) -> StackPair:
        """Return two stacks with their differences."""
        ends = (good, bad)

        def dependencies(candidate: Candidate, extra: NormalizedName | None, side: Side) -> tuple[Dependency, ...]:
            return self._source(ends[side].python).dependencies(candidate, extra) or ()

        def other_file(candidate: Candidate, side: Side) -> Candidate | None:
            version = LockedVersion(version=candidate.version)
            return self._candidate(candidate.name, version, self._target(ends[side].python))

        return StackPair(good, bad, dependencies=dependencies, other_file=other_file)

    def _of_day(self, text: str, option: str) -> StackEnd:
        moment = read_moment(text, option)
        if moment > datetime.now(UTC):
            raise InputError(f"`{option} {text}` is in the future", hint=_HINT)
        problem = self.setup.context.problem
        problem = replace(problem, policy=replace(problem.policy, exclude_newer=moment.isoformat()))
        stack = self._newest(problem, f"the project has no stack of `{option} {text}`")
        return self._end(text, self.setup.python, stack)

    def _newest(self, problem: ResolutionProblem, failure: str) -> CandidateStack:
        """Return the newest stack of a problem; without one, the error begins with what that means."""
        try:
            return resolve_baseline(problem, IndexCandidates(self.setup.client, problem))
        except NoStackError as error:
            raise NoStackError(f"{failure}: {error.message}", details=error.details, hint=error.hint) from None

    def _of_lock(self, path: Path, name: str) -> StackEnd:
        python = self._interpreter(path)
        return self.of_lock(read_lock(path, self._target(python)), name, python)

    def of_lock(self, lock: Lock, name: str, python: str = "") -> StackEnd:
        """Return the stack of a lock that was read, by default for the interpreter of the project.

        Raises:
            InputError: If it cannot be measured on this machine.
        """
        python = python or self.setup.python
        for text, _ in lock.obstacles:
            raise InputError(f"`{name}` cannot be installed on this machine: the lock {text}", hint=_HINT)
        stack = self._stack(lock, name, python)
        settings, notes = _settings(lock.path, stack)
        return self._end(name, python, stack, settings, notes)

    def _end(
        self,
        name: str,
        python: str,
        stack: CandidateStack,
        settings: Mapping[str, Scalar] | None = None,
        notes: tuple[str, ...] = (),
    ) -> StackEnd:
        if not stack:
            raise InputError(f"`{name}` has no packages", hint=_HINT)
        minor = self._target(python).python_minor
        return StackEnd(name=name, python=python, python_minor=minor, stack=stack, settings=settings or {}, notes=notes)

    def _interpreter(self, lock: Path) -> str:
        """Return the interpreter of a lock: the one that `--python` names, else that of the lock, else this one."""
        stated = locked_python(lock)
        if self.options.target.python or stated in (None, self._target(self.setup.python).python_minor):
            return self.setup.python
        try:
            return self.setup.locker.interpreter(stated)
        except InputError as error:
            own = self._target(self.setup.python).python_minor
            hint = f"install it, or measure both with one interpreter: `--python {own}`"
            raise InputError(f"`{lock}` is for Python {stated}: {error.message}", hint=hint) from None

    def _target(self, python: str) -> Target:
        return self.setup.locker.target(python)

    def _stack(self, lock: Lock, name: str, python: str) -> CandidateStack:
        """Return the files of a lock, with the newest versions of packages that it lacks."""
        target, candidates = self._target(python), dict[NormalizedName, Candidate]()
        identity = read_identity(self.options.files.directory / "pyproject.toml")
        self.setup.client.prefetch(projects=lock.packages)
        for package, locked in lock.packages.items():
            if identity and package == canonicalize_name(identity.name):
                # The program runs in a copy of the project.
                continue
            if locked.direct_reference:
                address = printable(locked.direct_reference)
                raise InputError(
                    f"`{package}` of `{name}` comes from `{address}`: only packages of indexes are measured",
                    hint="lock a released version of it",
                )
            candidate = self._candidate(package, locked, target)
            if candidate is None:
                with_hash = " with a hash of the lock" if locked.hashes else ""
                raise InputError(
                    f"the index has no wheel of `{package} {locked.version}`{with_hash} for Python "
                    f"{target.python_minor} on {target.platform}, which `{name}` needs",
                    hint="only wheels are measured; name the index of the lock with `--extra-index-url`",
                )
            candidates[package] = candidate
        return self._completed(candidates, name, python)

    def _completed(self, candidates: Mapping[NormalizedName, Candidate], name: str, python: str) -> CandidateStack:
        """Return packages with the newest versions of further ones that they require."""
        source, packages = self._source(python), tuple(candidates.values())
        source.fetch(packages)
        required = {d.name for candidate in packages for d in source.dependencies(candidate) or ()}
        stack = dict(candidates)
        if required - candidates.keys():
            pins = (Requirement(f"{c.name}==={c.version}") for c in packages)
            own = self.setup.context.problem
            problem = replace(
                own,
                roots=tuple(RootRequirement(requirement=pin, origin=f"`{name}`") for pin in pins),
                target=self._target(python),
                # Also yanked versions stay as they are.
                policy=replace(own.policy, retained=frozenset((c.name, c.version) for c in packages)),
            )
            failure = f"`{name}` lacks packages that it requires, and nothing completes it"
            stack = {**self._newest(problem, failure).by_name, **stack}
        return CandidateStack(stack[package] for package in sorted(stack))

    def _candidate(self, name: NormalizedName, locked: LockedVersion, target: Target) -> Candidate | None:
        """Return the wheel of a locked version that a target installs: one of the lock's files, if it has hashes."""
        reader, client = CompatibleFileReader(target, self.setup.client.cache), self.setup.client
        offers = [offer for page in client.pages(name) for offer in reader.of_version(page, name, locked.version)]
        for offer in sorted((offer for offer in offers if offer.is_wheel), key=lambda offer: offer.rank):
            file = client.pinned(offer.file) if locked.hashes else offer.file
            if not locked.hashes or file.sha256 in locked.hashes:
                return Candidate(name=name, version=offer.version, file=file)
        return None

    def _source(self, python: str) -> IndexCandidates:
        """Return what packages require with an interpreter."""
        if python not in self._sources:
            problem = replace(self.setup.context.problem, target=self._target(python))
            self._sources[python] = IndexCandidates(self.setup.client, problem)
        return self._sources[python]


def _settings(lock: Path | None, stack: CandidateStack) -> tuple[dict[str, Scalar], tuple[str, ...]]:
    """Return the run-time settings of a lock that its frameworks have, and notes about those that are not measured."""
    recorded = read_settings(lock) if lock is not None and lock.is_file() else None
    if recorded is None:
        return {}, ()
    values: dict[str, Scalar] = {}
    notes = []
    for setting in recorded.settings:
        has_framework = setting.framework == ANY or setting in recorded.known_to(stack.versions)
        if not has_framework or (not setting.is_from_outside and not setting.code):
            continue
        if not setting.is_from_outside:
            notes.append(f"`{setting.label}` needs code in the program, so it is the same on both sides")
        elif values.setdefault(setting.name, setting.value) != setting.value:
            notes.append(f"`{setting.name}` differs between frameworks: `{setting.label}` is not applied")
    return values, tuple(notes)
