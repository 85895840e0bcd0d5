"""The gate on good and bad pull requests to three example repositories.

The metadata of the packages is recorded from the real index (`record.py`); a server on loopback serves it. The
speeds of some versions of TensorFlow, PyTorch and NumPy are invented for these tests.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from knowledge.domain.frameworks import FRAMEWORKS
from knowledge.estimate.model_cache import ModelCache
from knowledge.store.engine import open_knowledge_base
from pi_runners.execution.environment import find_uv
from tests.conftest import Advisor
from tests.knowledge.samples import invented_blocks
from tests.package_index import PackageIndex

HERE = Path(__file__).parent


SECOND_FORMAT = pytest.mark.slow
"""Marks findings of another lock that a test proves for pinned requirements; one test of each lock proves its lines."""


@pytest.fixture(scope="module")
def knowledge(first_knowledge: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped observations and some invented ones."""
    path = Path(shutil.copy(first_knowledge, tmp_path_factory.mktemp("knowledge")))
    node = str(HERE / "language-model" / "hardware" / "node.yaml")
    with open_knowledge_base(str(path)) as store:
        store.add(invented_blocks("torch", {"2.10.0": 1.0, "2.8.0": 0.7, "2.15.0": 1.0}, device="cuda", hardware=node))
        store.add(
            invented_blocks("numpy", {"2.2.6": 1.0, "1.26.4": 0.6, "2.0.2": 1.0}, device="cpu", hardware="cpu-zen4")
        )
        store.add(
            invented_blocks(
                "tensorflow-cpu", {"2.20.0": 1.0, "2.12.1": 0.2, "2.15.1": 1.0}, device="cpu", hardware="cpu-zen4"
            )
        )
        for framework in FRAMEWORKS:
            for device in ("cpu", "cuda"):
                ModelCache(store).contrasts(framework, device)
    return path


@pytest.fixture(scope="module")
def served() -> Iterator[PackageIndex]:
    """An index with the recorded packages."""
    with PackageIndex() as index:
        for name, versions in json.loads((HERE / "index.json").read_text()).items():
            for version, about in versions.items():
                index.add(
                    name,
                    version,
                    about["requires"],
                    extras=about["extras"],
                    requires_python=about["requires_python"],
                    code="",
                )
        yield index


@dataclass
class Repository:
    """A clone with a change in its working tree.

    Attributes:
        folder: The working tree; its last commit is the base.
        check: Runs the gate against the base and returns the findings that fail.
        relock: Updates the lock to given versions.
    """

    folder: Path
    check: Callable[[], list[dict[str, Any]]]
    relock: Callable[..., None]

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text in a file that contains it."""
        path = self.folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def line(self, name: str, part: str, *, after: str = "") -> int:
        """Return the first line of a file that contains a text, at or after a line that starts with another text."""
        lines = (self.folder / name).read_text().splitlines()
        begin = next(number for number, line in enumerate(lines, 1) if line.startswith(after))
        return next(number for number, line in enumerate(lines, 1) if part in line and number >= begin)


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder."""
    own = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def open_repository(
    no_user_configuration: None,
    served: PackageIndex,
    knowledge: Path,
    advisor_here: Advisor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], Repository]:
    """Return a function that clones an example, locks it and commits it."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", served.url)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")

    def clone(name: str) -> Repository:
        folder = tmp_path / name
        shutil.copytree(HERE / name, folder)
        monkeypatch.chdir(folder)
        knowledge_path = shutil.copy(knowledge, tmp_path / "known.sqlite")
        monkeypatch.setenv("ADVISOR_KNOWLEDGE", f"sqlite:///{knowledge_path}")

        def check() -> list[dict[str, Any]]:
            result = advisor_here("check", "--base", "HEAD", "--format", "json")
            assert result.returncode in (0, 1), result.stderr
            document = json.loads(result.stdout)
            failing = [finding for finding in document["findings"] if finding["level"] == "error"]
            assert bool(failing) == bool(result.returncode)
            return failing

        def relock(*wanted: str) -> None:
            if (folder / "Pipfile").exists():
                pins = folder.parent / "pins.txt"
                pins.write_text("\n".join(wanted))
                result = advisor_here(
                    *("advise", "-o", "Pipfile.lock", "--hardware", "cpu-zen4"), *(("-c", str(pins)) if wanted else ())
                )
                assert result.returncode == 0, result.stderr
            elif (folder / "uv.lock").exists() or name == "language-model":
                arguments = [word for pin in wanted for word in ("--upgrade-package", pin)]
                # The example requires this version; the tests may run on another one.
                python = sys.executable if sys.version_info[:2] == (3, 11) else shutil.which("python3.11")
                if python is None:
                    pytest.skip("Python 3.11 is not installed")
                command = [find_uv(), "lock", "-q", "--no-python-downloads", "--python", python, *arguments]
                subprocess.run(command, cwd=folder, check=True)

        if name == "language-model":
            relock("torch==2.10.0", "numpy==2.2.6", "safetensors==0.5.3")
        elif name == "scoring-service":
            relock("numpy==2.2.6", "scipy==1.14.1", "pandas==2.2.3")
        git(folder, "init", "-q")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "base")
        return Repository(folder=folder, check=check, relock=relock)

    return clone


@pytest.fixture
def classifier(open_repository: Callable[[str], Repository]) -> Repository:
    """TensorFlow, with pinned requirements."""
    return open_repository("image-classifier")


@pytest.fixture
def model(open_repository: Callable[[str], Repository]) -> Repository:
    """PyTorch, locked by uv."""
    return open_repository("language-model")


@pytest.fixture
def service(open_repository: Callable[[str], Repository]) -> Repository:
    """Scikit-learn and XGBoost, with a Pipfile."""
    return open_repository("scoring-service")


def places(findings: list[dict[str, Any]]) -> set[tuple[str, str, int]]:
    """Return code, file and line of findings."""
    return {(f["code"], f["path"], f["line"]) for f in findings}


def test_a_good_change_of_pinned_requirements_passes(classifier: Repository) -> None:
    classifier.edit("requirements.txt", "pillow==11.3.0", "pillow==12.0.0")

    assert classifier.check() == []


def test_pinned_requirements_that_break_numpys_abi_are_stopped_at_their_line(classifier: Repository) -> None:
    classifier.edit("requirements.txt", "tensorflow-cpu==2.20.0", "tensorflow-cpu==2.15.1")

    assert ("ADV006", "requirements.txt", classifier.line("requirements.txt", "numpy")) in places(classifier.check())


def test_a_pinned_cuda_too_new_for_the_driver_is_stopped_at_its_line(classifier: Repository) -> None:
    classifier.edit("requirements.txt", "nvidia-cuda-runtime-cu12==12.5.82", "nvidia-cuda-runtime==13.0.88")

    findings = classifier.check()

    assert places(findings) == {("ADV003", "requirements.txt", 7)}
    assert findings[0]["targets"] == ["train"]
    assert "550.54.14" in findings[0]["message"]


def test_a_pinned_slower_tensorflow_is_stopped_by_measurements(classifier: Repository) -> None:
    classifier.edit("requirements.txt", "tensorflow-cpu==2.20.0", "tensorflow-cpu==2.12.1")
    classifier.edit("requirements.txt", "numpy==2.2.6", "numpy==1.23.5")

    findings = classifier.check()

    assert ("ADV007", "requirements.txt", 2) in places(findings)
    assert next(f for f in findings if f["code"] == "ADV007")["targets"] == ["serve"]


def test_a_foreign_index_in_requirements_is_stopped_at_its_line(classifier: Repository) -> None:
    classifier.edit("requirements.txt", "# augmentation", "--extra-index-url https://packages.example.org/simple\n#")

    assert places(classifier.check()) == {("ADV015", "requirements.txt", 6)}


def test_a_good_change_of_a_uv_lock_passes(model: Repository) -> None:
    model.relock("safetensors==0.6.2")

    assert model.check() == []


def test_a_uv_lock_that_breaks_numpys_abi_is_stopped_at_its_line(model: Repository) -> None:
    model.relock("torch==2.2.2", "numpy==2.0.2")

    assert ("ADV006", "uv.lock", model.line("uv.lock", 'version = "2.0.2"')) in places(model.check())


@SECOND_FORMAT
def test_a_uv_lock_with_a_cuda_too_new_for_the_driver_is_stopped_at_its_line(model: Repository) -> None:
    model.relock("torch==2.15.0")

    findings = places(model.check())

    assert {code for code, _, _ in findings} == {"ADV003"}
    assert ("ADV003", "uv.lock", model.line("uv.lock", "version", after='name = "nvidia-cuda-runtime"')) in findings


@SECOND_FORMAT
def test_a_uv_lock_with_a_slower_framework_is_stopped_at_its_line(model: Repository) -> None:
    model.relock("torch==2.8.0")

    assert ("ADV007", "uv.lock", model.line("uv.lock", 'version = "2.8.0"')) in places(model.check())


def test_a_uv_lock_with_a_package_from_a_foreign_index_is_stopped_at_its_line(
    model: Repository, index: PackageIndex
) -> None:
    index.add("safetensors", "0.6.2", code="import os")
    foreign = f'\n[[tool.uv.index]]\nname = "other"\nurl = "{index.url}"\nexplicit = true\n'
    source = 'sources = { safetensors = { index = "other" } }'
    model.edit("pyproject.toml", "[tool.advisor]", f"{source}\n{foreign}\n[tool.advisor]")
    model.relock()

    assert ("ADV015", "uv.lock", model.line("uv.lock", 'version = "0.6.2"')) in places(model.check())


def test_a_good_change_of_a_pipfile_lock_passes(service: Repository) -> None:
    service.relock("numpy==2.2.6", "scipy==1.14.1", "pandas==2.3.1")

    assert service.check() == []


def test_a_pipfile_lock_that_breaks_numpys_abi_is_stopped_at_its_line(service: Repository) -> None:
    service.edit("Pipfile.lock", '"version": "==1.14.1"', '"version": "==1.12.0"')

    findings = places(service.check())

    assert ("ADV006", "Pipfile.lock", service.line("Pipfile.lock", '"version": "==2.2.6"')) in findings
    assert ("ADV014", "Pipfile.lock", service.line("Pipfile.lock", '"version": "==1.12.0"')) in findings


@SECOND_FORMAT
def test_a_pipfile_lock_with_a_cuda_too_new_for_the_driver_is_stopped_at_its_line(service: Repository) -> None:
    service.edit("Pipfile", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime")
    service.relock("numpy==2.2.6", "scipy==1.14.1", "pandas==2.2.3", "nvidia-cuda-runtime==13.0.88")

    findings = service.check()

    line = service.line("Pipfile.lock", '"version": "==13.0.88"')
    assert places(findings) == {("ADV003", "Pipfile.lock", line)}
    assert findings[0]["targets"] == ["gpu"]


@SECOND_FORMAT
def test_a_pipfile_lock_with_a_slower_numpy_is_stopped_at_its_line(service: Repository) -> None:
    service.relock("numpy==1.26.4", "scipy==1.14.1", "pandas==2.2.3")

    assert ("ADV007", "Pipfile.lock", service.line("Pipfile.lock", '"version": "==1.26.4"')) in places(service.check())


@SECOND_FORMAT
def test_a_pipfile_lock_with_a_package_from_a_foreign_index_is_stopped_at_its_line(service: Repository) -> None:
    document = json.loads((service.folder / "Pipfile.lock").read_text())
    document["_meta"]["sources"].append({"name": "other", "url": "https://packages.example.org/simple"})
    document["default"]["pandas"]["index"] = "other"
    (service.folder / "Pipfile.lock").write_text(json.dumps(document, indent=4, sort_keys=True))

    line = service.line("Pipfile.lock", '"version": "==2.2.3"')
    assert places(service.check()) == {("ADV015", "Pipfile.lock", line)}
