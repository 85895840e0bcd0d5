"""Environment markers that depend on the variant of a wheel (PEP 825): `variant_label` and sets of its properties.

The conditions on the variant are replaced by their values; `packaging` reads the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.requirements import Requirement

from knowledge.domain.documents import requirement_from

_TEXT = r"""(?:'[^']*'|"[^"]*")"""
_VARIABLE = re.compile(r"\bvariant_(?:label|properties|features|namespaces)\b")
_QUOTED = re.compile(_TEXT)
_SIDE = rf"(?:{_TEXT}|\bvariant_\w+)"
_CONDITION = re.compile(
    rf"(?P<left>{_SIDE})\s*(?P<operator>==|!=|not\s+in\b|in\b)\s*(?P<right>{_SIDE})|{_TEXT}", re.ASCII
)
"""A condition on the variant; also other texts in quotes, which may contain the same words."""
_SEPARATOR = re.compile(r"\s*::\s*")
_PARTS = {"variant_properties": 3, "variant_features": 2, "variant_namespaces": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantEnvironment:
    """Values of the markers for one wheel on one machine; by default those of a wheel without a variant.

    Attributes:
        label: Label of the variant; empty for other files.
        properties: Those of its properties that the machine supports, such as ``nvidia :: sm_arch :: 90_real``.
    """

    label: str = ""
    properties: tuple[str, ...] = ()

    def evaluate(self, condition: re.Match[str]) -> str:
        """Return a constant instead of a condition on the variant; anything else unchanged, also if it is malformed."""
        left, operator, right = condition.group("left", "operator", "right")
        literal = right if left == "variant_label" else left
        if operator is None or literal[0] not in "'\"":
            return condition[0]
        text, is_membership = literal[1:-1], operator.endswith("in")
        if right in _PARTS and is_membership:
            names = {"::".join(_SEPARATOR.split(name)[: _PARTS[right]]) for name in self.properties}
            matches = _SEPARATOR.sub("::", text.strip()) in names
        elif "variant_label" not in (left, right):
            return condition[0]
        elif is_membership:
            matches = self.label in text if left == "variant_label" else text in self.label
        else:
            matches = text == self.label
        return f"python_version {'>=' if matches is not operator.startswith(('not', '!')) else '<'} '0'"


def uses_variants(text: str) -> bool:
    """Whether the marker of a requirement depends on the variant."""
    # Texts in quotes and the description of an address may contain the same words.
    return "variant_" in text and _VARIABLE.search(_QUOTED.sub("", _divided(text)[1])) is not None


def requirements_for(texts: Iterable[str], environment: VariantEnvironment) -> tuple[Requirement, ...]:
    """Return the requirements of a wheel whose markers depend on its variant.

    In their markers, the conditions on the variant are constants.

    Raises:
        InvalidRequirement: If one is malformed.
    """
    divided = map(_divided, texts)
    return tuple(requirement_from(f"{r} ; {_CONDITION.sub(environment.evaluate, marker)}") for r, marker in divided)


def _divided(text: str) -> tuple[str, str]:
    """Divide a requirement and its marker; a semicolon within an address has no space before it (PEP 508)."""
    name, _, _ = text.partition(";")
    separator = " ;" if "@" in _QUOTED.sub("", name) else ";"
    requirement, _, marker = text.partition(separator)
    return requirement.strip(), marker.strip()
