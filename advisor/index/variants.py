"""Variant metadata of a version (PEP 825, draft 0.1.1): what each variant label means, and the order of variants."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from advisor.index.limits import NAME_CHARACTERS, VARIANT_PROPERTIES, VARIANTS_BYTES, bytes_text
from knowledge.builds.variant_properties import SupportedProperties

NULL_LABEL = "null"
"""Label of the variant without properties, which every machine supports."""

_SCHEMA = re.compile(r"(?:/v?)(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?:\.json)?/?", re.ASCII)
_DRAFTS = ((0, 0, 3), (0, 1, 0), (0, 1, 1))
"""Drafts of the format that are read; of version 1, all."""
_WITH_FEATURE_ORDER = _DRAFTS[:2]
"""Drafts in which the publisher also orders features and values."""
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
    """

    schema: str
    namespaces: tuple[str, ...]
    variants: Mapping[str, Properties]
    features: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Properties = field(default_factory=dict)

    def restricted_to(self, labels: Iterable[str]) -> dict[str, Any]:
        """Return the content for some of the variants as JSON values, for a `pylock.toml`.

        Args:
            labels: Labels of the variants.
        """
        chosen = {label: self.variants[label] for label in sorted(set(labels))}
        used = {namespace for properties in chosen.values() for namespace in properties}
        # The list must not be empty, and the null variant uses no namespace.
        namespaces = [namespace for namespace in self.namespaces if namespace in used] or list(self.namespaces)
        priorities: dict[str, Any] = {"namespace": namespaces}
        if self.features:
            priorities["feature"] = {n: list(names) for n, names in self.features.items() if n in namespaces}
        if self.values:
            priorities["property"] = {n: _lists(features) for n, features in self.values.items() if n in namespaces}
        variants = {label: {n: _lists(f) for n, f in properties.items()} for label, properties in chosen.items()}
        return {"$schema": self.schema, "default-priorities": priorities, "variants": variants}


def _lists(features: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {feature: list(values) for feature, values in features.items()}


def parse_variants(body: bytes) -> VariantMetadata:
    """Read variant metadata.

    Args:
        body: The JSON document.

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
        features=_features(priorities.get("feature", {}), "feature") if is_ordered else {},
        values=_properties(priorities.get("property", {}), "`default-priorities.property`") if is_ordered else {},
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return table


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"`{name}` is not a JSON value")


def _version_of(schema: object) -> tuple[int, int, int]:
    """Return the version in the address of a schema.

    Raises:
        ValueError: If there is none, or it is not supported.
    """
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


def _features(value: object, key: str) -> Mapping[str, tuple[str, ...]]:
    where = f"`default-priorities.{key}`"
    features = {}
    for namespace, names in _table(value, where).items():
        _check(namespace, _NAME, where)
        features[namespace] = _texts(names, where, _NAME)
    return features


def _properties(value: object, where: str) -> Properties:
    properties: dict[str, Mapping[str, tuple[str, ...]]] = {}
    for namespace, features in _table(value, where).items():
        _check(namespace, _NAME, where)
        for feature, _ in _table(features, where).items():
            _check(feature, _NAME, where)
        properties[namespace] = {feature: _texts(values, where, _VALUE) for feature, values in features.items()}
    return properties


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


def property_texts(properties: Properties) -> tuple[str, ...]:
    """Return properties as texts, such as ``nvidia :: sm_arch :: 90_real``, sorted.

    Args:
        properties: The properties.
    """
    return tuple(
        sorted(
            f"{n} :: {f} :: {value}" for n, features in properties.items() for f in features for value in features[f]
        )
    )


def compatible_properties(properties: Properties, supported: SupportedProperties) -> Properties:
    """Return the properties that a machine supports; features without a supported value are absent.

    Args:
        properties: Properties of a variant.
        supported: What the machine supports.
    """
    return {
        namespace: {
            feature: common
            for feature, values in features.items()
            if (common := tuple(value for value in values if value in supported.values(namespace, feature)))
        }
        for namespace, features in properties.items()
    }


def why_unsupported(properties: Properties, supported: SupportedProperties) -> str:
    """Return why a machine does not support a variant, for its first unsupported feature; empty if it does.

    Args:
        properties: Properties of the variant.
        supported: What the machine supports.
    """
    for namespace, features in properties.items():
        if namespace not in supported.namespaces:
            return f"the namespace `{namespace}` is not known"
        if features and namespace in supported.missing:
            return f"`{namespace}`: {supported.missing[namespace]}"
        for feature, values in features.items():
            if not set(values).intersection(supported.values(namespace, feature)):
                own = supported.values(namespace, feature)
                has = f"the target supports at best `{own[0]}`" if own else "the target supports no value of it"
                few = ", ".join(f"`{value}`" for value in values[:3]) + (", ..." if len(values) > 3 else "")
                return f"`{namespace} :: {feature}` must be {'one of ' if len(values) > 1 else ''}{few}, and {has}"
    return ""


def order_variants(metadata: VariantMetadata, supported: SupportedProperties) -> tuple[str, ...]:
    """Return the labels of the variants that a machine supports, the best first (PEP 825, variant ordering).

    Args:
        metadata: The variants of a version.
        supported: What the machine supports, in the order of the providers.
    """
    order = _Order(metadata, supported)
    labels = [label for label, p in metadata.variants.items() if not why_unsupported(p, supported)]
    return tuple(sorted(labels, key=lambda label: (order.key(metadata.variants[label]), label)))


class _Order:
    """Positions of namespaces, features and values; each list is made once, because it may be long."""

    def __init__(self, metadata: VariantMetadata, supported: SupportedProperties) -> None:
        self._metadata = metadata
        self._supported = supported
        self._namespaces = _positions(metadata.namespaces)
        self._features: dict[str, Mapping[str, int]] = {}
        self._values: dict[tuple[str, str], Mapping[str, int]] = {}

    def key(self, properties: Properties) -> list[tuple[float, ...]]:
        """Return the positions of the best values of a supported variant, the most important one first.

        Its end is larger than any position, so that of two variants with equal beginnings the longer one is first.
        """
        keys: list[tuple[float, ...]] = [
            (self._namespaces[namespace], self._feature(namespace, feature), self._best(namespace, feature, values))
            for namespace, features in properties.items()
            for feature, values in features.items()
        ]
        return [*sorted(keys), (math.inf,)]

    def _feature(self, namespace: str, feature: str) -> int:
        if namespace not in self._features:
            first = self._metadata.features.get(namespace, ())
            self._features[namespace] = _positions((*first, *self._supported.namespaces[namespace]))
        return self._features[namespace][feature]

    def _best(self, namespace: str, feature: str, values: Iterable[str]) -> int:
        own = self._supported.values(namespace, feature)
        if (namespace, feature) not in self._values:
            first = self._metadata.values.get(namespace, {}).get(feature, ())
            self._values[namespace, feature] = _positions((*first, *own))
        positions = self._values[namespace, feature]
        return min(positions[value] for value in values if value in own)


def _positions(names: Iterable[str]) -> Mapping[str, int]:
    return {name: position for position, name in enumerate(dict.fromkeys(names))}
