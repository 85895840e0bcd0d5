"""Chooses among the variant wheels of a version (PEP 825), by the hardware of the target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.utils import NormalizedName
from packaging.version import Version

from advisor.domain.words import listed, quoted
from advisor.index.client import IndexClient
from advisor.index.pages.filenames import split_variant_label
from advisor.index.pages.page import DistributionFile
from advisor.index.pages.reader import ProjectPage
from advisor.index.variants.markers import VariantEnvironment
from advisor.index.variants.metadata import NULL_LABEL, VariantMetadata
from advisor.index.variants.order import order_variants, property_texts, why_unsupported, with_static_properties
from advisor.resolve.candidates.compatible_files import (
    SDIST_RANK,
    CompatibleFile,
    CompatibleFileReader,
    CompatibleFiles,
)
from advisor.resolve.candidates.problem import Candidate, ResolutionProblem
from knowledge.catalogue.variant_properties import SupportedProperties, supported_properties

_PLAIN_RANK = 1 << 29
"""Rank of a wheel without a variant: after every variant, before an sdist."""
_FEW = 3
"""Maximum number of examples in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionVariants:
    """The variants of one version on one page.

    Attributes:
        metadata: What their labels mean; `None` if it cannot be used.
        properties: What the target supports.
        supported: Labels that the target supports and has a compatible wheel of, the best first.
        refused: Why each other label cannot be used.
    """

    metadata: VariantMetadata | None
    properties: SupportedProperties
    supported: tuple[str, ...] = ()
    refused: Mapping[str, str]


class VariantFileReader:
    """Selects compatible files like :class:`CompatibleFileReader`, with the supported variants before other wheels."""

    def __init__(self, problem: ResolutionProblem, client: IndexClient) -> None:
        self._reader = CompatibleFileReader(problem.target, client.cache, variants=True)
        self._client = client
        self._supported = supported_properties(problem.target.hardware)
        self._by_index: dict[tuple[NormalizedName, Version, str], VersionVariants] = {}

    def read(self, page: ProjectPage, name: NormalizedName) -> CompatibleFiles:
        """Return the compatible files of a page. The files that describe variants are requested in one batch.

        Raises:
            UnavailableError: If one of these files cannot be requested.
        """
        return self._ranked(self._reader.read(page, name), name)

    def of_version(self, page: ProjectPage, name: NormalizedName, version: Version) -> tuple[CompatibleFile, ...]:
        """Return the compatible files of one version.

        Raises:
            UnavailableError: If the file that describes its variants cannot be requested.
        """
        offers = self._reader.read(page, name)
        return self._ranked(replace(offers, files=tuple(o for o in offers.files if o.version == version)), name).files

    def runs_on_target(self, requires_python: str | None) -> bool:
        """Whether a ``Requires-Python`` admits the target's interpreter."""
        return self._reader.runs_on_target(requires_python)

    def _ranked(self, offers: CompatibleFiles, name: NormalizedName) -> CompatibleFiles:
        """Drop unsupported variants, and place the others before wheels without a variant."""
        labels: dict[Version, dict[str, str]] = {}
        for offer in offers.files:
            if offer.label:
                labels.setdefault(offer.version, {})[offer.label] = offer.file.index
        described = {version: offers.variants[version] for version in labels if version in offers.variants}
        contents = dict(zip(described, self._client.variants(described.values()), strict=True))
        variants = {}
        for version, indexes in labels.items():
            variants[version] = self._judge(tuple(indexes), contents.get(version))
            self._by_index[name, version, next(iter(indexes.values()))] = variants[version]
        refused, examples = Counter(offers.refused), dict(offers.examples)
        files = []
        for offer in offers.files:
            if not offer.label:
                first = SDIST_RANK if offer.rank[0] == SDIST_RANK else _PLAIN_RANK
                files.append(replace(offer, rank=(first, *offer.rank)))
                continue
            of_version = variants[offer.version]
            if offer.label in of_version.supported:
                position = of_version.supported.index(offer.label)
                files.append(replace(offer, rank=(position, *offer.rank)))
            else:
                reason = of_version.refused[offer.label]
                refused[reason] += 1
                examples.setdefault(reason, offer.file.filename)
        return replace(offers, files=tuple(files), refused=refused, examples=examples)

    def _judge(self, labels: Sequence[str], content: VariantMetadata | str | None) -> VersionVariants:
        """Order the variants that have wheels for the platform."""
        if not isinstance(content, VariantMetadata):
            reason = f"variant metadata: {content or 'the index has no file that describes the variants'}"
            return VersionVariants(metadata=None, properties=self._supported, refused=dict.fromkeys(labels, reason))
        # The null variant has no properties, so that it needs no description.
        metadata = replace(content, variants={NULL_LABEL: {}, **content.variants})
        supported = with_static_properties(self._supported, metadata)
        present = {label: metadata.variants[label] for label in labels if label in metadata.variants}
        refused = {
            label: f"variant that the target does not support: {reason}"
            for label, properties in present.items()
            if (reason := why_unsupported(properties, supported))
        }
        unlisted = "variant metadata: the file that describes the variants does not contain the label"
        return VersionVariants(
            metadata=metadata,
            supported=tuple(order_variants(replace(metadata, variants=present), supported)),
            properties=supported,
            refused=refused | {label: unlisted for label in labels if label not in present},
        )

    def variants_of(self, candidate: Candidate) -> VersionVariants | None:
        """Return the variants of a candidate's version on the index of its file; `None` if there are none."""
        return self._by_index.get((candidate.name, candidate.version, candidate.file.index))

    def metadata_of(self, stack: Iterable[Candidate]) -> dict[NormalizedName, VariantMetadata]:
        """Return the variants of each package of a stack whose file is a variant wheel, for a lock."""
        variants = {c.name: self.variants_of(c) for c in stack if label_of(c.file)}
        return {name: v.metadata for name, v in variants.items() if v is not None and v.metadata is not None}

    def environment(self, candidate: Candidate) -> VariantEnvironment:
        """Return the values of the markers for a candidate's file."""
        variants, label = self.variants_of(candidate), label_of(candidate.file)
        if not label or variants is None or variants.metadata is None:
            return VariantEnvironment()
        properties = property_texts(variants.metadata.variants[label], variants.properties)
        return VariantEnvironment(label=label, properties=properties)

    def explain(self, candidate: Candidate) -> str:
        """Return a sentence about the choice among the variants of a candidate's version; empty without variants."""
        variants = self.variants_of(candidate)
        if variants is None:
            return ""
        label = label_of(candidate.file)
        refused = [f"`{name}` ({_short(reason)})" for name, reason in variants.refused.items()]
        unusable = f"; not possible: {listed(refused, _FEW)}" if refused else ""
        if not label:
            what = "its sdist" if candidate.is_sdist else "its wheel without a variant"
            return f"`{candidate.name} {candidate.version}` has variants, and {what} is installed{unusable}"
        properties = self.environment(candidate).properties
        means = f" ({quoted(properties, _FEW)})" if properties else ""
        count, names = len(variants.supported), quoted(variants.supported, _FEW)
        choice = (
            "the only variant that the target supports"
            if count == 1
            else f"the first of {count} that the target supports, in the order of its publisher: {names}"
        )
        used = {text.partition(" :: ")[0] for text in properties}
        assumed = "".join(f"; {text}" for name, text in self._supported.assumptions.items() if name in used)
        return (
            f"`{candidate.name} {candidate.version}` is installed as variant `{label}`{means}, {choice}{unusable}"
            f"{assumed}; the installer must support wheel variants"
        )


def label_of(file: DistributionFile) -> str:
    """Return the label of a variant wheel; empty for other files."""
    return split_variant_label(file.filename)[1]


def _short(reason: str) -> str:
    return reason.partition(": ")[2] or reason
