"""Which variants a machine supports, and their order (PEP 825, variant ordering)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from advisor.index.variants.metadata import Properties, VariantMetadata
from knowledge.catalogue.variant_properties import SupportedProperties


def with_static_properties(supported: SupportedProperties, metadata: VariantMetadata) -> SupportedProperties:
    """Return what a machine supports, with the properties that every machine supports according to the publisher.

    Args:
        supported: What the hardware supports.
        metadata: The variants of a version.
    """
    if not metadata.static:
        return supported
    missing = {name: reason for name, reason in supported.missing.items() if name not in metadata.static}
    return replace(supported, namespaces={**supported.namespaces, **metadata.static}, missing=missing)


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

        Its end is larger than any position. So if two variants begin equally, the longer one is first.
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
