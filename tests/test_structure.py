"""The script of the structure counts what only passes on."""

from __future__ import annotations

import ast

from benchmarks.structure import functions_of, needs_its_name, only_passes_on

SOURCE = '''
def passes_on(a, b):
    """Pass on."""
    return other(a, key=b.name)

def adds(a):
    return other(a, 1)

def postpones(a):
    def later():
        return other(a)
    return later

class Worker:
    @property
    def size(self):
        return count(self.parts)
    def work(self, a):
        return self.other.work(a)

@dataclass(frozen=True, slots=True)
class Value:
    def fits(self, other):
        return fits(other, self.limit)
    def differs(self, other, limit):
        return differs(other, limit)

class Contract(Protocol):
    def fits(self, other):
        return fits(other, self.limit)
'''


def test_functions_that_only_pass_on_are_counted_without_properties_and_methods_of_values() -> None:
    passing = [(f, parent) for f, parent in functions_of(ast.parse(SOURCE)) if only_passes_on(f)]

    assert [f.name for f, parent in passing if not needs_its_name(f, parent)] == ["passes_on", "work", "differs"]
    assert [f.name for f, parent in passing if needs_its_name(f, parent)] == ["later", "size", "fits", "fits"]
