"""Code of settings that needs no names of the program: it runs right after an import."""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
from collections.abc import Iterator

import pytest

from knowledge.catalogue.settings import ANY, Statements, shipped_settings, statements_of

_WITH_A_LOOP_OF_THE_PROGRAM = {("tensorflow", "amp", "float16")}
"""The gradients of a training loop must be scaled, too."""
_DEFAULTS = {
    ("torch", "onednn=on"),
    ("torch", "flush_denormal=on"),
    ("torch", "matmul_precision=highest"),
    ("torch", "cudnn_benchmark=off"),
    ("tensorflow", "tf32=on"),
}
"""What is so without the code, too, or what the check itself does."""


def values_with_code() -> Iterator[tuple[str, str, str | int]]:
    """Yield framework, setting and value of each choice with lines of code."""
    for setting in shipped_settings().values():
        for framework in setting.frameworks:
            for choice in framework.choices:
                if choice.code:
                    yield framework.backend, setting.name, 7 if choice.value == ANY else choice.value


def marked() -> list[tuple[str, Statements]]:
    """Return the statements of all choices that are marked, each with its framework."""
    return [(b, s) for b, name, value in values_with_code() for s in statements_of({name: value}, b)]


MARKED = marked()
IDS = [f"{backend}-{statements.setting}" for backend, statements in MARKED]


def free_names(code: str) -> set[str]:
    """Return the names that code uses and does not make."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)]
    made = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
    return {node.id for node in nodes} - made - set(dir(builtins))


@pytest.mark.parametrize(("backend", "statements"), MARKED, ids=IDS)
def test_marked_code_needs_its_import_only_and_can_be_checked(backend: str, statements: Statements) -> None:
    name, _, value = statements.setting.partition("=")
    choice = shipped_settings()[name].choice(backend, value)
    assert choice is not None
    [node] = ast.parse(choice.imports).body
    assert isinstance(node, ast.Import)
    [alias] = node.names

    assert alias.name == statements.module
    assert free_names(statements.code) == {alias.asname or alias.name}
    assert free_names(statements.check) == {alias.asname or alias.name}
    assert "{" not in statements.code + statements.check
    assert not choice.environment


def test_code_that_needs_no_names_of_the_program_is_marked() -> None:
    modules = {"torch", "tf", "keras", "cv2", "jax", "onnxruntime"}
    unmarked = [
        (backend, name, value)
        for backend, name, value in values_with_code()
        if not statements_of({name: value}, backend)
        for tree in [ast.parse("\n".join(shipped_settings()[name].choice(backend, value).code))]  # type: ignore[union-attr]
        if not any(isinstance(node, ast.With) for node in tree.body)
        and {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} <= modules
    ]

    assert set(unmarked) == _WITH_A_LOOP_OF_THE_PROGRAM


def test_what_applies_a_number_contains_it() -> None:
    [statements] = statements_of({"interop_threads": 3, "threads": 2}, "torch")

    assert statements == Statements(
        setting="interop_threads=3",
        module="torch",
        code="import torch\ntorch.set_num_interop_threads(3)",
        check="torch.get_num_interop_threads() == 3",
    )


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "statements"), MARKED, ids=IDS)
def test_marked_code_runs_in_a_new_interpreter_right_after_the_import_and_makes_its_check_true(
    backend: str, statements: Statements
) -> None:
    pytest.importorskip(statements.module)
    first, check = statements.code.splitlines()[0], statements.check
    program = f"{first}\nprint(bool({check}))\n{statements.code}\nassert {check}"

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert (result.stdout.split()[-1] == "True") == ((backend, statements.setting) in _DEFAULTS)
