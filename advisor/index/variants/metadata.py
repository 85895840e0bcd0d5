"""Variant metadata of a version (PEP 825): what each variant label means."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from advisor.index.limits import NAME_CHARACTERS, VARIANT_PROPERTIES, VARIANTS_BYTES, bytes_text

NULL_LABEL = "null"
"""Label of the variant without properties, which every machine supports."""

_SCHEMA = re.compile(r"(?:/v?)(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?:\.json)?/?", re.ASCII)
_DRAFTS = ((0, 0, 3), (0, 1, 0), (0, 1, 1), (0, 2, 0))
"""Drafts of the format that are read; of version 1, all."""
_WITH_FEATURE_ORDER = ((0, 0, 3), (0, 1, 0))
"""Drafts in which the publisher also orders features and values."""
_WITH_PROVIDERS = (0, 2, 0)
"""First draft in which the publisher may list the properties of a namespace that every machine supports."""
_NAME = re.compile(r"[a-z0-9_]+", re.ASCII)
_VALUE = re.compile(r"[a-z0-9_.]+", re.ASCII)

Properties = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Values of each feature of each namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantMetadata:
    """Content of a `NAME-VERSION-variants.json` or of the `variant.json` of a wheel.

    Attributes:
        schema: Address of the schema, which contains the version of the format.
        namespaces: Namespaces, the most important one first.
        variants: Properties of each variant, by label.
        features: By namespace, features that the publisher places before the others; only in drafts up to 0.1.0.
        values: By namespace and feature, values that the publisher places before the others; only in such drafts.
        static: Properties that every machine supports, with features and values in order; only since draft 0.2.0.
    """

    schema: str
    namespaces: tuple[str, ...]
    variants: Mapping[str, Properties]
    features: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Properties = field(default_factory=dict)
    static: Properties = field(default_factory=dict)

    def restricted_to(self, labels: Iterable[str]) -> dict[str, Any]:
        """Return the content for the variants with some labels as JSON values, for a `pylock.toml`."""
        described = {label: self.variants[label] for label in sorted(set(labels))}
        used = {namespace for properties in described.values() for namespace in properties}
        # The list must not be empty, and the null variant uses no namespace.
        namespaces = [namespace for namespace in self.namespaces if namespace in used] or list(self.namespaces)
        priorities: dict[str, Any] = {"namespace": namespaces}
        if self.features:
            priorities["feature"] = {n: list(names) for n, names in self.features.items() if n in namespaces}
        if self.values:
            priorities["property"] = {n: _lists(features) for n, features in self.values.items() if n in namespaces}
        variants = {label: {n: _lists(f) for n, f in properties.items()} for label, properties in described.items()}
        document = {"$schema": self.schema, "default-priorities": priorities, "variants": variants}
        if static := {n: f for n, f in self.static.items() if n in namespaces}:
            document["providers"] = {
                namespace: {"static-properties": _lists(features), "feature-order": list(features)}
                for namespace, features in static.items()
            }
        return document


def _lists(features: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {feature: list(values) for feature, values in features.items()}


def parse_variants(body: bytes) -> VariantMetadata:
    """Read a JSON document of variant metadata.

    Raises:
        ValueError: If it is too large, malformed or of an unknown version; the message is one line.
    """
    if len(body) > VARIANTS_BYTES:
        raise ValueError(f"it is larger than {bytes_text(VARIANTS_BYTES)}")
    try:
        document = json.loads(body, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it has too many nested values") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {' '.join(str(error).split())[:200]}") from None
    table = _table(document, "the document")
    schema = table.get("$schema")
    version = _version_of(schema)
    priorities = _table(table.get("default-priorities"), "`default-priorities`")
    namespaces = _texts(priorities.get("namespace"), "`default-priorities.namespace`", _NAME)
    variants = _variants(_table(table.get("variants"), "`variants`"))
    used = {namespace for properties in variants.values() for namespace in properties}
    if unlisted := sorted(used.difference(namespaces)):
        raise ValueError(f"`default-priorities.namespace` does not contain `{unlisted[0]}`")
    is_ordered = version in _WITH_FEATURE_ORDER
    return VariantMetadata(
        schema=str(schema),
        namespaces=namespaces,
        variants=variants,
        features={
            namespace: _texts(features, "`default-priorities.feature`", _NAME)
            for namespace, features in _named(priorities.get("feature", {}), "`default-priorities.feature`").items()
            if is_ordered
        },
        values=_properties(priorities.get("property", {}), "`default-priorities.property`") if is_ordered else {},
        static=_static(table.get("providers", {})) if version >= _WITH_PROVIDERS else {},
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return table


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"`{name}` is not a JSON value")


def _version_of(schema: object) -> tuple[int, int, int]:
    """Return the version in the address of a schema, if it is supported."""
    if not isinstance(schema, str) or not schema.isprintable() or len(schema) > NAME_CHARACTERS:
        raise ValueError("`$schema` is not an address")
    match = _SCHEMA.search(schema)
    if match is None or match.end() != len(schema):
        raise ValueError(f"`$schema` `{schema[:80]}` contains no version of the format")
    version = (int(match[1]), int(match[2]), int(match[3]))
    # A draft is not compatible with any other one; a newer minor version of 1 is (PEP 825, variant metadata).
    if version[0] != 1 and version not in _DRAFTS:
        raise ValueError(f"version {'.'.join(map(str, version))} of the format is not supported")
    return version


def _table(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object")
    return value


def _texts(value: object, where: str, pattern: re.Pattern[str]) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"{where} is not a list of texts")
    if len(value) > VARIANT_PROPERTIES or len(set(value)) != len(value):
        raise ValueError(f"{where} contains a text twice, or too many texts")
    for text in value:
        _check(text, pattern, where)
    return tuple(value)


def _check(text: str, pattern: re.Pattern[str], where: str) -> None:
    if len(text) > NAME_CHARACTERS or pattern.fullmatch(text) is None:
        raise ValueError(f"{where} contains {text[:80]!a}, which is not a valid name")


def _named(value: object, where: str) -> Mapping[str, Any]:
    table = _table(value, where)
    for name in table:
        _check(name, _NAME, where)
    return table


def _properties(value: object, where: str) -> Properties:
    return {
        namespace: {f: _texts(values, where, _VALUE) for f, values in _named(features, where).items()}
        for namespace, features in _named(value, where).items()
    }


def _static(value: object) -> Properties:
    """Return the static properties of each provider that has some."""
    static: dict[str, Mapping[str, tuple[str, ...]]] = {}
    for namespace, provider in _named(value, "`providers`").items():
        where = f"`providers.{namespace}`"
        table = _table(provider, where)
        if "static-properties" in table:
            features = _properties({namespace: table["static-properties"]}, f"{where}.static-properties")[namespace]
            order = _texts(table.get("feature-order", []), f"{where}.feature-order", _NAME)
            static[namespace] = {n: features[n] for n in dict.fromkeys((*order, *features)) if n in features}
    return static


def _variants(table: Mapping[str, Any]) -> Mapping[str, Properties]:
    variants: dict[str, Properties] = {}
    count = 0
    for label, value in table.items():
        _check(label, _VALUE, "`variants`")
        properties = _properties(value, f"variant `{label}`")
        count += sum(len(values) for features in properties.values() for values in features.values())
        if count > VARIANT_PROPERTIES or len(variants) > VARIANT_PROPERTIES:
            raise ValueError(f"it contains more than {VARIANT_PROPERTIES} variant properties")
        if not all(values for features in properties.values() for values in features.values()):
            raise ValueError(f"variant `{label}` has a feature without values")
        if label == NULL_LABEL and properties:
            raise ValueError(f"the variant `{NULL_LABEL}` has properties")
        variants[label] = properties
    return variants
