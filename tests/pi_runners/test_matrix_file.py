"""Matrix files: their combinations, and the errors of files that are not valid."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import knowledge
from knowledge.catalogue.fit import contradictions
from knowledge.catalogue.settings import setting_error, shipped_settings
from knowledge.domain.errors import InputError
from knowledge.domain.frameworks import MEASURED
from pi_runners.harness.settings import apply_settings, parse_number_list
from pi_runners.plan.matrix import expand_settings, fitting, framework_of
from pi_runners.plan.matrix_file import Matrix, read_matrix

SHIPPED = sorted((Path(knowledge.__file__).parent / "data" / "matrices").glob("*.toml"))
INDEX_VERSIONS = [Version(v) for v in ("2.4.1", "2.4.0", "2.3.5", "1.26.4", "1.26.3")]


def versions_of(requirement: Requirement, python: str) -> Sequence[Version]:
    return [v for v in INDEX_VERSIONS if requirement.specifier.contains(v)]


def write_matrix(tmp_path: Path, text: str) -> Matrix:
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    return read_matrix(path)


SMALL = 'name = "m"\nindicators = ["sort"]\n'


def labels(matrix: Matrix) -> list[str]:
    return [c.label for c in matrix.combinations(versions_of, ("3.11",), max_runs=1000)]


def test_a_range_expands_to_the_newest_version_of_each_minor_release(tmp_path: Path) -> None:
    matrix = write_matrix(tmp_path, SMALL + '[[stack]]\nframework = "numpy>=1.26"\nwith = ["scipy"]\n')

    assert labels(matrix) == ["numpy==2.4.1 scipy", "numpy==2.3.5 scipy", "numpy==1.26.4 scipy"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_matrix_files_of_shipped_measurements_are_valid(path: Path) -> None:
    combinations = read_matrix(path).combinations(lambda *_: [Version("1")], ("3.11",), max_runs=10**6)

    assert combinations
    assert all(c.cases for c in combinations)
    assert not [c for c in combinations if contradictions(c.settings, backend=MEASURED[framework_of(c.requirements)])]


def test_versions_all_and_newest_select_all_versions_and_the_newest(tmp_path: Path) -> None:
    every = write_matrix(tmp_path, SMALL + '[[stack]]\nframework = "numpy<2"\nversions = "all"\n')
    newest = write_matrix(tmp_path, SMALL + '[[stack]]\nframework = "numpy"\nversions = "newest"\n')

    assert labels(every) == ["numpy==1.26.4", "numpy==1.26.3"]
    assert labels(newest) == ["numpy==2.4.1"]


def test_settings_are_combined_and_an_exclude_table_removes_combinations(tmp_path: Path) -> None:
    matrix = write_matrix(
        tmp_path,
        SMALL
        + '[settings]\nthreads = [1, 2]\n[[stack]]\nframework = "numpy>=2"\n'
        + '[[exclude]]\nframework = "numpy==2.3.*"\nsettings = { threads = 1 }\n',
    )

    assert labels(matrix) == ["numpy==2.4.1, threads=1", "numpy==2.4.1, threads=2", "numpy==2.3.5, threads=2"]


def test_each_table_in_a_list_of_settings_is_expanded_for_itself(tmp_path: Path) -> None:
    matrix = write_matrix(
        tmp_path,
        SMALL + '[[stack]]\nframework = "numpy==2.4.1"\n'
        'settings = [{}, { threads = [1, 2] }, { isa = "avx2", threads = 1 }]\n',
    )

    assert labels(matrix) == [
        "numpy==2.4.1",
        "numpy==2.4.1, threads=1",
        "numpy==2.4.1, threads=2",
        "numpy==2.4.1, isa=avx2, threads=1",
    ]


def test_an_exclude_table_does_not_remove_an_included_stack(tmp_path: Path) -> None:
    matrix = write_matrix(
        tmp_path,
        SMALL
        + '[[stack]]\nframework = "numpy>=2"\n[[exclude]]\nframework = "numpy>=2.4"\n'
        + '[[include]]\nframework = "numpy==2.4.0"\nsettings = { threads = 1 }\n',
    )

    assert labels(matrix) == ["numpy==2.3.5", "numpy==2.4.0, threads=1"]


def test_interpreters_cuda_and_cudnn_versions_are_all_combined(tmp_path: Path) -> None:
    matrix = write_matrix(
        tmp_path,
        'python = ["3.11", "3.12"]\nallow-cudnn-override = true\n'
        + SMALL
        + '[[stack]]\nframework = "numpy==2.4.*"\ncuda = ["12.6"]\ncudnn = ["9.5", "9.10"]\n',
    )

    combinations = matrix.combinations(versions_of, ("3.10",), max_runs=100)

    assert [(c.python, c.cuda, c.cudnn) for c in combinations] == [
        (python, "12.6", cudnn) for python in ("3.11", "3.12") for cudnn in ("9.5", "9.10")
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "is not valid TOML"),
        ('name = "m"\n', "`indicators`: field required"),
        (SMALL + "[[stack]]\nframework = 3\n", "`stack.0.framework`"),
        (SMALL + '[[stack]]\nframework = "numpy"\ncolour = "red"\n', "`stack.0` has no key `colour`"),
        (SMALL + 'rounds = 0\n[[stack]]\nframework = "numpy"\n', "`rounds`"),
        (SMALL + '[[stack]]\nframework = "numpy=>1"\n', "is not a valid requirement"),
        (SMALL + '[[stack]]\nframework = "torch"\ncudnn = ["9.5"]\n', "replaces the cuDNN"),
    ],
)
def test_an_invalid_matrix_file_is_an_error_message(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        write_matrix(tmp_path, text)

    assert message in error.value.message
    assert "matrix.toml" in error.value.message


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('round = 3\n[[stack]]\nframework = "numpy"\n', "rounds"),
        ('min-tim = 0.1\n[[stack]]\nframework = "numpy"\n', "min-time"),
        ('[[stack]]\nframwork = "numpy"\n', "framework"),
        ('[[stack]]\nframework = "numpy"\nversion = "all"\n', "versions"),
        ('[[stack]]\nframework = "numpy"\nwiht = ["scipy"]\n', "with"),
        ('[[include]]\nframework = "numpy"\ncudnm = ["9.5"]\n', "cudnn"),
        ('[[exclude]]\npyhton = "3.12"\n', "python"),
        ('[[stack]]\nframework = "numpy"\nindicators = [{ name = "sort", sizes = "small" }]\n', "size"),
    ],
)
def test_a_misspelt_key_gets_the_nearest_key_as_a_hint(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(InputError) as error:
        write_matrix(tmp_path, SMALL + text)

    assert " has no key `" in error.value.message
    assert error.value.hint == f"did you mean `{key}`?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[stack]]\nframework = "numpy>=9"\n', "expands to no combination"),
        ('[[stack]]\nframework = "numpy"\nversions = "all"\n[settings]\nthreads = [1, 2, 3]\n', "more than 10"),
        ('[[stack]]\nframework = "numpy"\nindicators = ["dance"]\n', "there is no indicator `dance`"),
        ('[[stack]]\nframework = "numpy"\nsettings = { turbo = "on" }\n', "there is no setting `turbo`"),
        ('[[stack]]\nframework = "numpy"\nsettings = { threads = 0 }\n', "integer of at least 1"),
        ('[[stack]]\nframework = "numpy"\nindicators = [{name = "sort", size = "huge"}]\n', "no size `huge`"),
        ('[[stack]]\nframework = "numpy"\nindicators = [{name = "sort", parameters = {rows = 0}}]\n', "`rows` must be"),
    ],
)
def test_a_matrix_that_cannot_be_expanded_is_an_error_message(tmp_path: Path, text: str, message: str) -> None:
    matrix = write_matrix(tmp_path, SMALL + text)

    with pytest.raises(InputError) as error:
        matrix.combinations(versions_of, ("3.11",), max_runs=10)

    assert message in error.value.message


def test_a_missing_file_is_an_error_message(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_matrix(tmp_path / "none.toml")


def test_settings_expand_to_every_combination() -> None:
    assert expand_settings({"threads": [1, 2], "onednn": ["on"]}) == (
        {"onednn": "on", "threads": 1},
        {"onednn": "on", "threads": 2},
    )
    assert fitting({"threads": 1, "xla": "on", "tf32": "on"}, "tensorflow", "cpu") == {"threads": 1, "xla": "on"}


def test_default_is_a_setting_that_is_not_set() -> None:
    assert expand_settings({"allocator": ["default", "tcmalloc"]}) == ({}, {"allocator": "tcmalloc"})
    with pytest.raises(InputError, match="there is no setting `speed`"):
        expand_settings({"speed": ["default"]})


def test_an_absent_numa_node_is_unsupported() -> None:
    from pi_runners.harness.contract import Unsupported

    with pytest.raises(Unsupported, match="no NUMA node 4711"):
        apply_settings({"numa": 4711})


def test_a_list_of_processors_is_parsed() -> None:
    assert parse_number_list("0-2,7") == [0, 1, 2, 7]
    assert parse_number_list("") == []


@pytest.mark.parametrize("name", shipped_settings())
def test_every_setting_rejects_an_invalid_value(name: str) -> None:
    assert setting_error(name, "sideways") is not None
    assert setting_error(name, next(iter(shipped_settings()[name].choices), 1)) is None
