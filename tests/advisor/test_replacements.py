"""Other packages and extras for the hardware, and the best interpreter: chosen, locked, reported, checked."""

from __future__ import annotations

import html
import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from tests.advisor.replacement_projects import CPU, GPU, add_frameworks, findings, locked, write_project
from tests.conftest import Advisor
from tests.package_index import PackageIndex


@pytest.fixture
def frameworks(index: PackageIndex) -> PackageIndex:
    """An index with the packages of `add_frameworks`."""
    return add_frameworks(index)


def test_the_extra_for_the_accelerator_is_locked_and_passes_the_gate(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project(tmp_path / "p", "jax")
    here = ("--index-url", frameworks.url)

    result = advisor("advise", *here, *GPU, "--format", "json", cwd=folder)

    assert locked(folder) == {"jax": "0.8.0", "cuda13-libraries": "1.0"}
    assert (
        "ADV109",
        "`jax[cuda13]` is locked where `jax` is required, and uses the target's accelerator",
    ) in findings(result)
    check = advisor("check", *here, *GPU, cwd=folder)
    assert check.returncode == 0, check.stdout
    advisor("advise", *here, *CPU, cwd=folder)
    assert locked(folder) == {"jax": "0.8.0"}


def test_the_smallest_change_keeps_the_extras_of_the_lock_and_adds_none(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path
) -> None:
    here = ("--index-url", frameworks.url)
    folder = write_project(tmp_path / "p", "jax", "tensorflow<2.20")
    advisor("advise", *here, *CPU, cwd=folder)
    assert "cuda13-libraries" not in locked(folder)
    (folder / "pyproject.toml").write_text((folder / "pyproject.toml").read_text().replace("<2.20", ">=2.20"))
    for hardware, has_libraries in ((GPU, False), (CPU, False)):
        update = advisor("advise", "--update", *here, *hardware, "--dry-run", cwd=folder)
        assert "tensorflow" in update.stdout
        assert ("cuda13-libraries" in update.stdout) == has_libraries

    advisor("advise", *here, *GPU, cwd=folder)
    assert locked(folder)["cuda13-libraries"] == "1.0"
    (folder / "pyproject.toml").write_text((folder / "pyproject.toml").read_text().replace(">=2.20", "<2.20"))
    assert advisor("advise", "--update", *here, *GPU, cwd=folder).returncode == 0
    assert locked(folder)["cuda13-libraries"] == "1.0"
    assert locked(folder)["tensorflow"] == "2.19.0"


def test_the_effect_of_a_replacement_counts_what_it_adds_and_what_is_not_needed_either(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    index.add("xgboost", "3.1.0", ["nvidia-nccl-cu13", "a"], code="")
    index.add("xgboost-cpu", "3.1.0", ["a", "b"], code="")
    index.add("nvidia-nccl-cu13", "2.28.9", code=os.urandom(2_000_000).hex())
    index.add("a", "1.0", code="")
    index.add("b", "1.0", ["c<2"], code="")
    index.add("c", "1.0", code=os.urandom(1_000_000).hex())
    index.add("c", "2.0", code="")
    folder = write_project(tmp_path / "p", "xgboost")

    proposed = findings(advisor("advise", "--index-url", index.url, *CPU, "--format", "json", cwd=folder))

    message = next(message for code, message in proposed if code == "ADV112")
    sizes = re.search(
        r"\(([0-9.]+) MB instead of ([0-9.]+) MB to download: `nvidia-nccl-cu13` is not needed either", message
    )
    assert sizes is not None, message
    assert float(sizes[1]) >= 1
    assert float(sizes[2]) >= 2
    assert "; with `b`, `c`, which it also requires" in message


def test_a_replacement_is_proposed_with_its_effect_and_taken_only_if_allowed(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project(tmp_path / "p", "tensorflow")
    here = ("--index-url", frameworks.url, *CPU)

    proposed = findings(advisor("advise", *here, "--format", "json", cwd=folder))

    assert locked(folder) == {"tensorflow": "2.20.0"}
    message = next(message for code, message in proposed if code == "ADV112")
    assert "`tensorflow-cpu` provides the same modules as `tensorflow`" in message
    assert re.search(r"\(1\d\d kB instead of 4\d\d kB to download\)", message)
    assert "`--allow replace-packages` allows it" in message

    allowed = advisor("advise", *here, "--allow", "replace-packages", "--format", "json", cwd=folder)

    assert locked(folder) == {"tensorflow-cpu": "2.20.0"}
    assert any(code == "ADV112" and "is locked where" in message for code, message in findings(allowed))
    assert advisor("check", *here, "--allow", "replace-packages", cwd=folder).returncode == 0
    # Without it, the project's own requirement is not satisfied.
    assert advisor("check", *here, cwd=folder).returncode == 1


def test_a_replacement_of_the_settings_holds_for_what_others_require(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path
) -> None:
    settings_text = 'replace-packages = { TensorFlow = "tensorflow-cpu" }'
    folder = write_project(tmp_path / "p", "user-of-tensorflow", settings=settings_text)

    assert advisor("advise", "--index-url", frameworks.url, *CPU, cwd=folder).returncode == 0

    assert locked(folder) == {"tensorflow-cpu": "2.20.0", "user-of-tensorflow": "1.0"}


def test_an_unknown_word_after_allow_is_named(advisor: Advisor, frameworks: PackageIndex, tmp_path: Path) -> None:
    folder = write_project(tmp_path / "p", "tensorflow")

    result = advisor("advise", "--index-url", frameworks.url, "--allow", "replace-package", cwd=folder)

    assert result.returncode == 2
    assert "`replace-package` cannot be allowed" in result.stderr
    assert "replace-packages" in result.stderr


def test_the_interpreter_with_the_best_stack_is_taken(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    index.add("frame", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    index.add("frame", "2.0", tag="cp312-cp312-manylinux_2_28_x86_64", uploaded="2027-06-01T00:00:00Z")
    index.add("frame", "1.0", tag="cp313-cp313-manylinux_2_28_x86_64")
    folder = write_project(tmp_path / "p", "frame", settings='python = "best"')
    here = ("--index-url", index.url, "--hardware", "cpu-zen4")

    result = advisor("advise", *here, "--format", "json", cwd=folder)

    assert result.returncode == 0, result.stderr
    # A release of two and a half years later counts more than a year of the interpreter.
    assert locked(folder) == {"frame": "2.0"}
    interpreters = json.loads(result.stdout)["interpreters"]
    assert [entry["python"] for entry in interpreters if not entry["obstacle"]] == ["3.12", "3.13"]
    assert {entry["python"] for entry in interpreters if entry["obstacle"]} >= {"3.11", "3.14"}
    assert "3.12" in tomllib.loads((folder / "pylock.toml").read_text())["requires-python"]
    check = advisor("check", *here, cwd=folder)
    assert check.returncode == 0, check.stdout + check.stderr


def test_the_html_report_compares_the_interpreters_like_the_text_report(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    index.add("frame", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    index.add("frame", "2.0", tag="cp312-cp312-manylinux_2_28_x86_64", uploaded="2027-06-01T00:00:00Z")
    index.add("frame", "1.0", tag="cp313-cp313-manylinux_2_28_x86_64")
    folder = write_project(tmp_path / "p", "frame")
    here = ("--index-url", index.url, "--hardware", "cpu-zen4", "--dry-run")

    text = " ".join(advisor("advise", *here, "--python", "best", "--details", cwd=folder).stdout.split())
    page = advisor("advise", *here, "--python", "best", "--format", "html", cwd=folder).stdout
    of_one = advisor("advise", *here, "--python", "3.12", "--format", "html", cwd=folder).stdout

    block = html.unescape(page.partition(">Interpreters")[2].partition("</details>")[0])
    plain = re.sub(r"<code>|</code>", "`", block)
    rows = re.findall(r"<tr><td>(Python [\d.]+)</td><td[^>]*>[1-]</td><td>(.*?)</td></tr>", plain)
    assert rows[0] == ("Python 3.12", "best score")
    assert "Python 3.12 has the best-scored stack" in text
    assert len(rows) > 2
    assert all(f"{label}: {difference}" in text for label, difference in rows[1:])
    measured = re.findall(r'<p class="soft">Measured: (.*?)</p>', plain)
    assert any(line.startswith("pure Python, compared with ") for line in measured)
    assert all(line in text for line in measured)
    assert ">Interpreters" not in of_one


def test_no_interpreter_with_a_stack_is_an_error_with_each_reason(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    index.add("frame", "1.0", tag="cp27-cp27m-manylinux_2_28_x86_64")
    folder = write_project(tmp_path / "p", "frame", settings='python = "best"')

    result = advisor("advise", "--index-url", index.url, "--hardware", "cpu-zen4", cwd=folder)

    assert result.returncode == 3
    assert "there is no stack for any interpreter that the project supports" in result.stderr
    assert "Python 3.12" in result.stderr


def test_the_gate_knows_the_extras_of_the_lock(advisor: Advisor, frameworks: PackageIndex, tmp_path: Path) -> None:
    folder = write_project(tmp_path / "p", "jax")
    here = ("--index-url", frameworks.url, *GPU)
    advisor("advise", *here, cwd=folder)

    result = advisor("check", *here, "--format", "json", cwd=folder)

    assert result.returncode == 0
    assert "ADV019" not in result.stdout


def test_extras_of_other_releases_are_not_those_of_the_lock(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    for version in ("1.24.4", "1.28.0"):
        libraries = [f"libraries; extra == '{extra}'" for extra in ("cuda", "cudnn")]
        index.add("onnxruntime-gpu", version, libraries, extras=["cuda", "cudnn"])
    index.add("libraries", "1.0")
    folder = write_project(tmp_path / "p", "onnxruntime-gpu")
    here = ("--index-url", index.url, *GPU)
    (folder / "limit.txt").write_text("onnxruntime-gpu<1.28\n")
    advisor("advise", *here, "--constraint", "limit.txt", cwd=folder)

    result = advisor("check", *here, "--format", "json", cwd=folder)

    assert locked(folder) == {"onnxruntime-gpu": "1.24.4", "libraries": "1.0"}
    assert "ADV001" not in [code for code, _ in findings(result)]


def test_an_extra_that_no_stack_has_is_reported_and_not_as_an_unknown_one(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    index.add("jax", "0.8.0", ["missing; extra == 'cuda13'"], extras=["cuda13"])
    folder = write_project(tmp_path / "p", "jax")

    result = advisor("advise", "--index-url", index.url, *GPU, "--format", "json", cwd=folder)

    codes = dict(findings(result))
    assert "`jax 0.8.0` leaves the target's accelerator idle" in codes["ADV110"]
    assert "ADV104" not in codes


@pytest.mark.parametrize("entry", ['tensorflow = "tensorflow-cpuu"', 'numpy = "cupy"'])
def test_a_replacement_that_the_catalogue_does_not_know_is_an_error(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path, entry: str
) -> None:
    folder = write_project(tmp_path / "p", "tensorflow", settings=f"replace-packages = {{ {entry} }}")

    result = advisor("advise", "--index-url", frameworks.url, *CPU, cwd=folder)

    assert result.returncode == 2
    assert "the catalogue of builds does not know that" in result.stderr
    assert ("tensorflow-cpu`" in result.stderr) == entry.startswith("tensorflow")


def test_the_smallest_possible_download_includes_replacements(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project(tmp_path / "p", "tensorflow")
    here = ("--index-url", frameworks.url, *CPU, "--allow", "replace-packages")
    sizes = {
        name: sum(len(content) for file, content in frameworks.files.items() if file.startswith(f"{name}-2.20.0-"))
        for name in ("tensorflow", "tensorflow_cpu")
    }
    assert sizes["tensorflow_cpu"] < sizes["tensorflow"]

    refused = advisor("advise", *here, "--max-size", "0.1kB", cwd=folder)

    assert refused.returncode == 3
    assert "the smallest possible stack has 1 package with" in refused.stderr
    assert "there is a stack for Python" not in refused.stderr
    kilobytes = -(-sizes["tensorflow_cpu"] // 1000)
    assert advisor("advise", *here, "--max-size", f"{kilobytes}kB", cwd=folder).returncode == 0
    assert list(locked(folder)) == ["tensorflow-cpu"]


def test_an_interpreter_with_only_a_pre_release_of_a_package_is_not_taken(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    index.add("frame", "1.0", tag="cp312-cp312-manylinux_2_28_x86_64")
    index.add("frame", "2.0rc1", tag="cp314-cp314-manylinux_2_28_x86_64")
    folder = write_project(tmp_path / "p", "frame", settings='python = "best"')

    result = advisor("advise", "--index-url", index.url, "--hardware", "cpu-zen4", cwd=folder)

    assert locked(folder) == {"frame": "1.0"}
    assert "Python 3.12 has the best-scored stack" in result.stdout


def test_a_package_that_replaces_another_differs_from_it(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project(tmp_path / "p", "tensorflow-cpu", settings='allow = ["replace-packages"]')
    frameworks.add("tensorflow-cpu", "2.21.0")
    with (folder / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.replace-packages]\ntensorflow-cpu = "tensorflow"\n')
        for name, hardware in (("laptop", "cpu-zen4"), ("server", "h100")):
            file.write(f'[tool.advisor.targets.{name}]\nhardware = "{hardware}"\npython = "3.12"\n')

    result = advisor("advise", "--index-url", frameworks.url, "--targets", "all", "--dry-run", cwd=folder)

    assert result.returncode == 0, result.stderr
    shared = "0 packages differ between the targets; 1 differ if each target has its own best stack"
    assert shared in " ".join(result.stdout.split())


def test_the_limits_of_the_catalogue_are_no_constraints_of_the_user(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project(tmp_path / "p", "tensorflow>=2.19")
    here = ("--index-url", frameworks.url, *CPU, "--allow", "replace-packages")

    assert advisor("advise", *here, "-o", "lock.txt", cwd=folder).returncode == 0
    prices = json.loads(advisor("prices", *here, "--no-pythons", "--format", "json", cwd=folder).stdout)["prices"]

    assert "tensorflow-cpu==2.20.0" in (folder / "lock.txt").read_text()
    assert "via https" not in (folder / "lock.txt").read_text()
    assert [price["constraint"] for price in prices] == ["tensorflow-cpu>=2.19"]


def test_a_remembered_answer_is_not_that_of_other_choices(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project(tmp_path / "p", "tensorflow")
    here = ("--index-url", frameworks.url, *CPU, "--dry-run")
    first = advisor("advise", *here, cwd=folder).stdout
    assert advisor("advise", *here, cwd=folder).stdout == first

    assert "tensorflow-cpu  2.20.0 added" in advisor("advise", *here, "--allow", "replace-packages", cwd=folder).stdout
    refused = advisor("advise", *here, "--max-size", "1kB", cwd=folder)
    assert refused.returncode == 3


REPLACEMENTS = {
    "onnxruntime-gpu": "onnxruntime",
    "opencv-python": "opencv-python-headless",
    "paddlepaddle-gpu": "paddlepaddle",
    "xgboost": "xgboost-cpu",
}


def write_project_with_many_replacements(folder: Path, index: PackageIndex, *packages: str) -> Path:
    """Write a project that requires packages, of which those of REPLACEMENTS may be replaced."""
    for name in packages:
        index.add(name, "3.5.0.20")
        if name in REPLACEMENTS:
            index.add(REPLACEMENTS[name], "3.5.0.20")
    pairs = ", ".join(f'{name} = "{other}"' for name, other in REPLACEMENTS.items() if name in packages)
    return write_project(folder, *packages, settings=f"replace-packages = {{ {pairs} }}")


def test_combinations_that_are_not_tried_are_reported_and_named_packages_come_first(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project_with_many_replacements(tmp_path / "p", frameworks, *REPLACEMENTS, "tensorflow")
    frameworks.add("tensorflow-cpu", "3.5.0.20")
    here = ("--index-url", frameworks.url, *CPU, "--allow", "replace-packages", "--format", "json")

    result = advisor("advise", *here, cwd=folder)

    assert set(locked(folder)) == {*REPLACEMENTS.values(), "tensorflow"}
    (message,) = [message for code, message in findings(result) if code == "ADV115"]
    assert message.startswith("16 of 32 combinations of replacements were not tried: `tensorflow` is left as required")


def test_nothing_is_reported_if_every_combination_was_tried(
    advisor: Advisor, frameworks: PackageIndex, tmp_path: Path
) -> None:
    folder = write_project_with_many_replacements(tmp_path / "p", frameworks, *REPLACEMENTS)
    here = ("--index-url", frameworks.url, *CPU, "--allow", "replace-packages", "--format", "json")

    result = advisor("advise", *here, cwd=folder)

    assert set(locked(folder)) == set(REPLACEMENTS.values())
    assert "ADV115" not in dict(findings(result))
