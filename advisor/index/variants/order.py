"""Which variants a machine supports, and their order (PEP 825, variant ordering)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

from advisor.index.variants.metadata import Properties, VariantMetadata
from knowledge.catalogue.variant_properties import SupportedProperties


def with_static_properties(supported: SupportedProperties, metadata: VariantMetadata) -> SupportedProperties:
    """Return what a machine supports, with the properties that every machine supports according to the publisher."""
    if not metadata.static:
        return supported
    missing = {name: reason for name, reason in supported.missing.items() if name not in metadata.static}
    return replace(supported, namespaces={**supported.namespaces, **metadata.static}, missing=missing)


def property_texts(properties: Properties, supported: SupportedProperties) -> tuple[str, ...]:
    """Return the properties of a variant that a machine supports, such as ``nvidia :: sm_arch :: 90_real``, sorted."""
    return tuple(
        sorted(
            f"{namespace} :: {feature} :: {value}"
            for namespace, features in properties.items()
            for feature, values in features.items()
            for value in values
            if value in supported.values(namespace, feature)
        )
    )


def why_unsupported(properties: Properties, supported: SupportedProperties) -> str:
    """Return why a machine does not support a variant, for its first unsupported feature; empty if it does."""
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
    """Return the labels of the variants that a machine supports, the best first (PEP 825, variant ordering)."""
    namespaces = _positions(metadata.namespaces)

    # Each list is made once, because it may be long.
    @cache
    def feature_positions(namespace: str) -> Mapping[str, int]:
        return _positions((*metadata.features.get(namespace, ()), *supported.namespaces[namespace]))

    @cache
    def value_positions(namespace: str, feature: str) -> Mapping[str, int]:
        first = metadata.values.get(namespace, {}).get(feature, ())
        return _positions((*first, *supported.values(namespace, feature)))

    def key(label: str) -> tuple[list[tuple[float, ...]], str]:
        # The positions of the best values. The end is larger than any position: if two variants begin equally, the
        # longer one is first.
        keys: list[tuple[float, ...]] = []
        for n, features in metadata.variants[label].items():
            for f, values in features.items():
                own = set(values).intersection(supported.values(n, f))
                best = min(value_positions(n, f)[value] for value in own)
                keys.append((namespaces[n], feature_positions(n)[f], best))
        return [*sorted(keys), (math.inf,)], label

    return tuple(
        sorted((label for label, p in metadata.variants.items() if not why_unsupported(p, supported)), key=key)
    )


def _positions(names: Iterable[str]) -> Mapping[str, int]:
    return {name: position for position, name in enumerate(dict.fromkeys(names))}
