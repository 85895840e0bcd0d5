"""Formats of reports are the modules of a folder: a new format is one file."""

from __future__ import annotations

from pathlib import Path

import pytest

# The help of a command names the formats that exist when it is imported: not the toy.
import advisor.cli.advise
import advisor.cli.check
import advisor.report.advice.formats
import advisor.report.check.formats
from advisor.report.advice.formats import ADVICE_FORMATS
from advisor.report.check.formats import CHECK_FORMATS
from advisor.report.formats import ReportFormats
from tests.conftest import Advisor
from tests.package_index import PackageIndex

_TOY = '''
SUFFIX = ".toy"


def render(report, presentation):
    """Return the report."""
    return f"a toy with {'' if presentation.details else 'no '}details: {type(report).__name__}"
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A format `toy` of both reports, in one file each."""
    for package in (advisor.report.advice.formats, advisor.report.check.formats):
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / "toy.py").write_text(_TOY)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        formats = next(value for value in vars(package).values() if isinstance(value, ReportFormats))
        monkeypatch.setattr(formats, "_paths", package.__path__)


@pytest.mark.usefixtures("toy")
def test_a_file_is_a_format(index: PackageIndex, advisor_here: Advisor, tmp_path: Path) -> None:
    index.add("a", "1.0")
    (tmp_path / "requirements.txt").write_text(f"--index-url {index.url}\na==1.0\n")
    target = ("--hardware", "cpu-zen4", "--python", "3.12")

    advice = advisor_here("advise", *target, "--dry-run", "--format", "toy")
    check = advisor_here("check", *target, "--format", "toy", "-o", "report.toy")
    unknown = advisor_here("check", "--format", "other")

    assert advice.stdout == "a toy with no details: AdviceResult\n", advice.stderr
    assert check.stdout == "a toy with no details: GateResult\n", check.stderr
    assert (tmp_path / "report.toy").read_text() == check.stdout
    assert "`toy`" in unknown.stderr


@pytest.mark.usefixtures("toy")
def test_a_new_format_comes_after_the_others() -> None:
    assert ADVICE_FORMATS.names == ("text", "json", "html", "toy")
    assert CHECK_FORMATS.names[-1] == "toy"


@pytest.mark.parametrize("formats", [ADVICE_FORMATS, CHECK_FORMATS])
def test_the_list_of_formats_is_the_list_of_files(formats: ReportFormats) -> None:
    folder = Path(next(iter(formats._paths)))

    assert sorted(formats.names) == sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize(
    ("name", "format"), [("a.json", "json"), ("a.sarif", "sarif"), ("a.out", None), ("a", None), ("a.txt", "text")]
)
def test_the_suffix_of_a_file_stands_for_a_format(name: str, format: str | None) -> None:
    assert CHECK_FORMATS.of_file(Path(name)) == format


def test_the_reference_names_each_format_and_suffix() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "gate.md").read_text()

    for name in CHECK_FORMATS.names:
        assert f"`{name}`" in page
        suffix = CHECK_FORMATS._module(name).SUFFIX
        assert not suffix or f"`*{suffix}`" in page
