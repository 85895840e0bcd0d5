"""Environment markers that depend on the variant of a wheel (PEP 825): `variant_label` and sets of its properties."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement

from knowledge.domain.documents import requirement_from

_VARIABLE = re.compile(r"\bvariant_(?:label|properties|features|namespaces)\b")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'[^']*'|\"[^\"]*\")|(?P<parenthesis>[()])|(?P<operator>===|==|~=|!=|<=|>=|<|>)|(?P<word>[\w.]+))"
)
_SEPARATOR = re.compile(r"\s*::\s*")
_MAX_DEPTH = 32
"""Maximum number of nested parentheses."""
_OPERATORS = {
    "variant_label": ("==", "!=", "in", "not in"),
    "variant_properties": ("in", "not in"),
    "variant_features": ("in", "not in"),
    "variant_namespaces": ("in", "not in"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantEnvironment:
    """Values of the markers for one wheel on one machine; by default those of a wheel without a variant.

    Attributes:
        label: Label of the variant; empty for other files.
        properties: Those of its properties that the machine supports, such as ``nvidia :: sm_arch :: 90_real``.
    """

    label: str = ""
    properties: tuple[str, ...] = ()

    def values(self, variable: str) -> frozenset[str]:
        """Return the values of one of the variables that are sets.

        Args:
            variable: Its name.
        """
        length = {"variant_properties": 3, "variant_features": 2, "variant_namespaces": 1}[variable]
        return frozenset("::".join(_SEPARATOR.split(text)[:length]) for text in self.properties)


def uses_variants(text: str) -> bool:
    """Whether the marker of a requirement depends on the variant.

    Args:
        text: The requirement.
    """
    # Texts in quotes and the description of an address may contain the same words.
    return "variant_" in text and _VARIABLE.search(_QUOTED.sub("", _divided(text)[1])) is not None


def check_variant_requirement(text: str) -> None:
    """Check that a requirement whose marker depends on the variant is well-formed.

    Args:
        text: The requirement.

    Raises:
        InvalidRequirement: If it is not.
    """
    requirement, marker = _divided(text)
    requirement_from(f"{requirement} ; {_Parser(marker, None).parse()}")


def requirements_for(texts: Iterable[str], environment: VariantEnvironment) -> tuple[Requirement, ...]:
    """Return the requirements of a wheel whose markers depend on its variant.

    Their markers contain the other conditions alone. Requirements of other variants are left out.

    Args:
        texts: Requirements that :func:`check_variant_requirement` accepts.
        environment: The variant.
    """
    requirements = []
    for text in texts:
        requirement, marker = _divided(text)
        rest = _Parser(marker, environment).parse()
        if rest is not False:
            requirements.append(requirement_from(requirement if rest is True else f"{requirement} ; {rest}"))
    return tuple(requirements)


def _divided(text: str) -> tuple[str, str]:
    """Divide a requirement and its marker; a semicolon within an address has no space before it (PEP 508)."""
    name, _, _ = text.partition(";")
    separator = " ;" if "@" in _QUOTED.sub("", name) else ";"
    requirement, _, marker = text.partition(separator)
    return requirement.strip(), marker.strip()


class _Parser:
    """Replaces the conditions on the variant in a marker by their values, and simplifies the rest."""

    def __init__(self, marker: str, environment: VariantEnvironment | None) -> None:
        """Divide a marker into tokens.

        Args:
            marker: The marker.
            environment: The variant; `None` to replace each condition on it by another one, to check the marker.
        """
        self._environment = environment
        self._tokens: list[tuple[str, str]] = []
        position = 0
        while position < len(marker):
            match = _TOKEN.match(marker, position)
            if match is None:
                if marker[position:].strip():
                    raise InvalidRequirement(f"its marker cannot be read at {marker[position:][:40]!a}")
                break
            kind = match.lastgroup or ""
            self._tokens.append((kind, match[kind]))
            position = match.end()
        self._next = 0

    def parse(self) -> str | bool:
        """Return the rest of the marker, or whether it is true or false.

        Raises:
            InvalidRequirement: If it is malformed.
        """
        result = self._alternatives(0)
        if self._next != len(self._tokens):
            raise InvalidRequirement(f"its marker has an unexpected {self._tokens[self._next][1][:40]}")
        return result

    def _peek(self) -> str:
        return self._tokens[self._next][1] if self._next < len(self._tokens) else ""

    def _take(self, *kinds: str) -> str:
        if self._next >= len(self._tokens) or self._tokens[self._next][0] not in kinds:
            raise InvalidRequirement(f"its marker is incomplete at {self._peek()[:40]!a}")
        self._next += 1
        return self._tokens[self._next - 1][1]

    def _alternatives(self, depth: int) -> str | bool:
        parts = [self._conjunction(depth)]
        while self._peek() == "or":
            self._next += 1
            parts.append(self._conjunction(depth))
        if any(part is True for part in parts):
            return True
        texts = [part for part in parts if isinstance(part, str)]
        return f"({' or '.join(texts)})" if len(texts) > 1 else (texts[0] if texts else False)

    def _conjunction(self, depth: int) -> str | bool:
        parts = [self._condition(depth)]
        while self._peek() == "and":
            self._next += 1
            parts.append(self._condition(depth))
        if any(part is False for part in parts):
            return False
        texts = [part for part in parts if isinstance(part, str)]
        return " and ".join(texts) if texts else True

    def _condition(self, depth: int) -> str | bool:
        if self._peek() == "(":
            if depth >= _MAX_DEPTH:
                raise InvalidRequirement("its marker has too many nested parentheses")
            self._next += 1
            inner = self._alternatives(depth + 1)
            if self._peek() != ")":
                raise InvalidRequirement("its marker has a parenthesis without an end")
            self._next += 1
            return inner
        first = self._take("text", "word")
        operator = self._take("operator", "word")
        if operator == "not":
            operator = f"not {self._take('word')}"
        second = self._take("text", "word")
        variables = [side for side in (first, second) if side in _OPERATORS]
        if not variables:
            return f"{first} {operator} {second}"
        return self._value(variables[0], operator, first, second)

    def _value(self, variable: str, operator: str, first: str, second: str) -> str | bool:
        literal = second if first == variable else first
        is_membership = operator in ("in", "not in")
        is_set = variable != "variant_label"
        if literal[:1] not in "'\"" or operator not in _OPERATORS[variable] or (is_set and second != variable):
            raise InvalidRequirement(f"its marker uses `{variable}` in `{first[:40]} {operator} {second[:40]}`")
        if self._environment is None:
            return "python_version >= '3'"
        text = literal[1:-1]
        if is_set:
            matches = _SEPARATOR.sub("::", text.strip()) in self._environment.values(variable)
        elif is_membership:
            label = self._environment.label
            matches = label in text if first == variable else text in label
        else:
            matches = self._environment.label == text
        return matches is not operator.startswith(("not", "!"))
