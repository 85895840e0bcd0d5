"""Costs of choices as terms of the model: literals, each with what it costs if it is true."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from packaging.utils import NormalizedName

from advisor.resolve.optimum.encode import Encoding
from advisor.resolve.optimum.solver import Literal, negated
from advisor.resolve.score.costs import Choice, OptionCosts, PairedChoice


class CostTerms:
    """Writes costs as terms of an encoding; adds the Booleans that they need, and makes packages more explicit."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._model = encoding.model
        self._both: dict[tuple[Literal, Literal], Literal] = {}
        self._unions: dict[frozenset[Literal], Literal] = {}
        self._absent: dict[NormalizedName, Literal] = {}
        self._different: dict[tuple[NormalizedName, NormalizedName], Literal] = {}
        self._compared: set[tuple[Literal, Literal, frozenset[Literal]]] = set()

    def of_choices(
        self, choices: Mapping[Choice, int], pairs: Mapping[tuple[Choice, PairedChoice], int]
    ) -> dict[Literal, int]:
        """Return costs by literal; packages of pairs are expanded fully.

        Pairs of two packages get one Boolean for each set of versions of the one and of the other that cost the same:
        thousands of pairs have few distinct costs.
        """
        for name in sorted({choice[0] for pair in pairs for choice in pair}):
            if name in self._encoding.candidates:
                self._encoding.expand(name, len(self._encoding.allowed[name]))
        collected: dict[Literal, int] = {}
        priced = {name for name, _ in choices}
        for name in self._encoding.candidates:
            if name not in priced:
                continue
            prices = [choices.get((name, candidate.version), 0) for candidate in self._encoding.allowed[name]]
            self._expand_cheaper(name, prices)
            explicit = self._encoding.choices[name]
            collected.update(zip(explicit.values(), prices, strict=False))
            if len(explicit) < len(prices):
                collected[self._encoding.older[name]] = min(prices[len(explicit) :])
        for ones, others, cost in self._alike(pairs):
            both = self._product(self._any_of(ones), self._any_of(others))
            collected[both] = collected.get(both, 0) + cost
        return {literal: cost for literal, cost in sorted(collected.items()) if cost}

    def of_combinations(self, costs: Mapping[frozenset[Choice], int]) -> dict[Literal, int]:
        """Return the costs of stacks that have all of some choices, by literal; their packages are expanded fully."""
        collected: dict[Literal, int] = {}
        for choices, cost in costs.items():
            if all(name in self._encoding.candidates for name, _ in choices):
                for name, _ in choices:
                    self._encoding.expand(name, len(self._encoding.allowed[name]))
                literals = [self._encoding.literal(choice) for choice in sorted(choices)]
                # A version that the project does not admit has no literal.
                if None not in literals:
                    together = functools.reduce(self._product, filter(None, literals))
                    collected[together] = collected.get(together, 0) + cost
        return collected

    def of_options(self, costs: OptionCosts) -> dict[Literal, int]:
        """Return the costs of extras that may be required in addition, by literal."""
        collected: dict[Literal, int] = {}
        for (name, place), cost in costs.items():
            literals = self._encoding.options.get(name, ())
            if cost and literals:
                literal = literals[-1 if place is None else place]
                if place is None:
                    literal = self._product(self._encoding.present[name], literal)
                collected[literal] = cost
        return collected

    def of_absences(self, costs: Mapping[NormalizedName, int]) -> dict[Literal, int]:
        """Return the costs of packages that are not in the stack, by literal."""
        collected: dict[Literal, int] = {}
        for name, cost in sorted(costs.items()):
            if name in self._encoding.candidates:
                if name not in self._absent:
                    self._absent[name] = self._model.boolean()
                    self._model.exactly_one((self._absent[name], self._encoding.present[name]))
                collected[self._absent[name]] = cost
        return collected

    def of_differences(self, pairs: Iterable[tuple[NormalizedName, NormalizedName]]) -> dict[Literal, int]:
        """Return a literal for each pair of packages, with cost 1, that is true if both have different releases.

        It is not true for certain if a package that is not explicit is chosen: that is a relaxation, too.
        """
        literals: dict[Literal, int] = {}
        for one, other in pairs:
            if one in self._encoding.candidates and other in self._encoding.candidates:
                if (one, other) not in self._different:
                    self._different[one, other] = self._model.boolean()
                for left, right in ((one, other), (other, one)):
                    self._compare_releases(left, right, self._different[one, other])
                literals[self._different[one, other]] = 1
        return literals

    def _compare_releases(self, one: NormalizedName, other: NormalizedName, different: Literal) -> None:
        """Require that a package has the release of another one if both are in the stack, or that they differ."""
        explicit: dict[str, list[Literal]] = {}
        for version, literal in self._encoding.choices[other].items():
            explicit.setdefault(version.public, []).append(literal)
        older = {candidate.release for candidate in self._encoding.older_candidates(other)}
        choices = [(literal, {version.public}) for version, literal in self._encoding.choices[one].items()]
        if rest := {candidate.release for candidate in self._encoding.older_candidates(one)}:
            choices.append((self._encoding.older[one], rest))
        for literal, releases in choices:
            same = [equal for release in releases for equal in explicit.get(release, ())]
            if releases & older:
                same.append(self._encoding.older[other])
            # The model grows: a constraint of fewer explicit candidates stays valid, and a new one is stricter.
            key = (literal, different, frozenset(same))
            if key not in self._compared:
                self._compared.add(key)
                absent = negated(self._encoding.present[other])
                self._model.require_any([negated(literal), absent, different, *same])

    def _expand_cheaper(self, name: NormalizedName, prices: Sequence[int]) -> None:
        """Expand a package until no other candidate is cheaper than the explicit ones: it would likely be chosen."""
        explicit = len(self._encoding.choices[name])
        dearest = max(prices[:explicit], default=0)
        cheaper = [place for place in range(explicit, len(prices)) if prices[place] < dearest]
        if cheaper:
            self._encoding.expand(name, cheaper[-1] + 1)

    def _alike(
        self, pairs: Mapping[tuple[Choice, PairedChoice], int]
    ) -> Iterator[tuple[frozenset[Literal], frozenset[Literal], int]]:
        """Yield sets of literals of two packages such that each pair of them has the same cost."""
        rows: dict[tuple[NormalizedName, NormalizedName], dict[Literal, dict[Literal, int]]] = {}
        for (left, right), cost in pairs.items():
            one, other = self._encoding.literal(left), self._encoding.literal(right)
            if cost and one is not None and other is not None:
                rows.setdefault((left[0], right[0]), {}).setdefault(one, {})[other] = cost
        for of_packages in rows.values():
            alike: dict[frozenset[tuple[Literal, int]], list[Literal]] = {}
            for one, costs in of_packages.items():
                alike.setdefault(frozenset(costs.items()), []).append(one)
            for row, ones in alike.items():
                by_cost: dict[int, list[Literal]] = {}
                for other, cost in row:
                    by_cost.setdefault(cost, []).append(other)
                for cost, others in by_cost.items():
                    yield frozenset(ones), frozenset(others), cost

    def _any_of(self, literals: frozenset[Literal]) -> Literal:
        """Return a literal that is true if and only if one of some literals is."""
        if len(literals) == 1:
            return next(iter(literals))
        if literals not in self._unions:
            union = self._model.boolean()
            for literal in literals:
                self._model.require(union, when=literal)
            self._model.require_any([negated(union), *sorted(literals)])
            self._unions[literals] = union
        return self._unions[literals]

    def _product(self, left: Literal, right: Literal) -> Literal:
        """Return a literal that is true if and only if both others are."""
        key = (min(left, right), max(left, right))
        if key not in self._both:
            both = self._model.boolean()
            self._model.require_any((negated(left), negated(right), both))
            self._model.require(left, when=both)
            self._model.require(right, when=both)
            self._both[key] = both
        return self._both[key]
