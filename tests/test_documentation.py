"""The generated pages are current, and facts of other pages agree with the code."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from docs import gpu_evidence, measurements

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ACCOUNT = "OWNER" + "/"
"""Placeholder of the account of the repository, concatenated so that this file does not contain it."""


def generated_files() -> dict[Path, str]:
    """Return the texts of `docs/generate.py` by path."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: dict[Path, str] = module.pages()
    return pages


def test_the_generated_pages_are_current() -> None:
    pages = generated_files()
    stale = [path.name for path, text in pages.items() if path.read_text(encoding="utf-8") != text]

    assert stale == [], "run `python docs/generate.py`"
    assert {p.name for p in (DOCS / "reference" / "indicators").glob("*.md")} == {
        path.name for path in pages if path.parent.name == "indicators"
    }


def test_pages_that_are_read_are_short() -> None:
    explanations = sorted((DOCS / "explanation").glob("*.md"))
    pages = [*explanations, *(DOCS / "how-to").rglob("*.md"), *(DOCS / "tutorial").glob("*.md")]
    words = {page.name: len(page.read_text(encoding="utf-8").split()) for page in pages}

    assert {name: count for name, count in words.items() if count > 1800} == {}
    assert sum(words[page.name] for page in explanations) < 20_000
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split()) < 1000


def test_files_and_commands_that_the_pages_name_exist() -> None:
    pages = [page for page in DOCS.rglob("*.md") if "_build" not in page.parts]
    roots = "advisor|knowledge|pi_runners|benchmarks|tests|docs|examples|templates"
    missing = []
    for page in (*pages, *ROOT.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        paths = [name.rstrip(".") for name in re.findall(rf"`(?:python3? )?((?:{roots})/[\w./*-]+)", text)]
        paths += [name.replace(".", "/") + "*" for name in re.findall(r"python3? -m ((?:benchmarks|tests)\.\w+)", text)]
        missing += [f"{page.name}: {path}" for path in paths if path != "docs/_build" and not list(ROOT.glob(path))]

    assert missing == []


@pytest.mark.slow
def test_the_page_of_measurements_is_current() -> None:
    assert measurements.PAGE.read_text(encoding="utf-8") == measurements.page(), "run `python docs/measurements.py`"


@pytest.mark.slow
def test_the_page_of_published_evidence_is_current() -> None:
    page = gpu_evidence.page(*gpu_evidence.evidence())

    assert gpu_evidence.PAGE.read_text(encoding="utf-8") == page, "run `python docs/gpu_evidence.py`"


def test_the_address_of_the_repository_is_in_one_file_and_in_what_is_generated_from_it() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is not a git checkout")

    holders = {
        name
        for name in listed.stdout.split("\0")
        if (ROOT / name).is_file() and ACCOUNT.encode() in (ROOT / name).read_bytes()
    }

    generated = {str(path.relative_to(ROOT)) for path, text in generated_files().items() if ACCOUNT in text}
    assert holders == {"pyproject.toml", *generated}


def test_the_page_about_installing_lists_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (DOCS / "install.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^\| `([a-z]+)` \|", page, re.MULTILINE)) == set(project["optional-dependencies"])
    assert f"It has {len(project['dependencies'])} direct dependencies" in page


def test_the_container_has_the_programs_that_a_campaign_needs() -> None:
    container = (ROOT / "Containerfile").read_text(encoding="utf-8")

    assert "'/source[kubernetes,measure]'" in container
