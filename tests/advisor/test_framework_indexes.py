"""Indexes as frameworks publish them: one for each CUDA version, local versions, pages with links to wheels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from advisor.index.access import OfflineError
from advisor.index.http.errors import IndexUnreachableError
from advisor.index.pages.reader import IndexAnswerError
from tests.advisor.factories import build_client
from tests.advisor.publisher_index import PLATFORM, base, digest, packages, page, quoted, serve, wheel_of
from tests.conftest import Advisor
from tests.package_index import PackageIndex

HARDWARE = ("--hardware", "cpu-zen4", "--python", "3.12")


@pytest.fixture
def pytorch(index: PackageIndex) -> PackageIndex:
    """A default index, and directories `/whl/cpu` and `/whl/cu126` with other builds, in the layout of pytorch.org.

    Its pages are HTML with percent-encoded relative addresses and hashes, and each directory has a few packages only.
    """
    index.add("torch", "2.8.0", ["triton"], tag=f"cp312-cp312-{PLATFORM}")
    index.add("triton", "3.4.0")
    index.add("numpy", "2.3.0")
    builds: tuple[tuple[str, tuple[str, ...]], ...] = (("cpu", ()), ("cu126", ("triton",)))
    for build, requires in builds:
        names = [wheel_of(index, "torch", f"{version}+{build}", requires) for version in ("2.7.1", "2.8.0")]
        links = [f'<a href="../../../files/{quoted(n)}#sha256={digest(index, n)}">{n}</a><br/>' for n in names]
        serve(index, f"/whl/{build}/torch/", page(links))
    return index


def project(folder: Path, index: PackageIndex, text: str) -> Path:
    """Write a requirements file that uses an index; return its folder."""
    folder.mkdir()
    (folder / "requirements.txt").write_text(f"--index-url {index.url}\n{text}")
    return folder


@pytest.mark.parametrize("build", ["cpu", "cu126"])
def test_the_build_of_an_extra_index_is_taken(
    advisor: Advisor, pytorch: PackageIndex, tmp_path: Path, build: str
) -> None:
    extra = base(pytorch, f"/whl/{build}")
    folder = project(tmp_path / "p", pytorch, f"--extra-index-url {extra}\ntorch\nnumpy\n")

    result = advisor("advise", *HARDWARE, cwd=folder)

    assert result.returncode == 0, result.stderr
    locked = packages(folder)
    assert locked["torch"]["version"] == f"2.8.0+{build}"
    assert locked["torch"]["index"] == extra
    assert locked["torch"]["wheels"][0]["url"].endswith(f"/files/torch-2.8.0%2B{build}-cp312-cp312-{PLATFORM}.whl")
    assert locked["numpy"]["index"] == pytorch.url
    assert ("triton" in locked) == (build == "cu126")
    assert advisor("check", *HARDWARE, cwd=folder).returncode == 0


def test_a_local_version_selects_one_build(advisor: Advisor, pytorch: PackageIndex, tmp_path: Path) -> None:
    extra = base(pytorch, "/whl/cu126")
    folder = project(tmp_path / "p", pytorch, f"--extra-index-url {extra}\ntorch==2.7.1+cu126\n")

    assert advisor("advise", *HARDWARE, cwd=folder).returncode == 0

    assert packages(folder)["torch"]["version"] == "2.7.1+cu126"


def test_a_version_without_label_admits_the_builds_of_an_index(
    advisor: Advisor, pytorch: PackageIndex, tmp_path: Path
) -> None:
    extra = base(pytorch, "/whl/cpu")
    folder = project(tmp_path / "p", pytorch, f"--extra-index-url {extra}\ntorch==2.7.1\n")

    assert advisor("advise", *HARDWARE, cwd=folder).returncode == 0

    assert packages(folder)["torch"]["version"] == "2.7.1+cpu"


def test_a_build_that_the_index_lacks_is_explained(advisor: Advisor, pytorch: PackageIndex, tmp_path: Path) -> None:
    extra = base(pytorch, "/whl/cu126")
    folder = project(tmp_path / "p", pytorch, f"--extra-index-url {extra}\ntorch==2.7.1+cu118\n")

    result = advisor("advise", *HARDWARE, cwd=folder)

    assert result.returncode == 3
    assert "torch==2.7.1+cu118" in result.stderr
    assert "available candidates: 2.7.1+cu126 to 2.8.0+cu126 (2 versions)" in result.stderr


def test_an_explicit_index_of_uv_serves_only_its_packages(
    advisor: Advisor, pytorch: PackageIndex, tmp_path: Path
) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    # The explicit index also has a newer `numpy`, which nobody bound to it.
    name = wheel_of(pytorch, "numpy", "9.0")
    serve(pytorch, "/whl/cpu/numpy/", page([f'<a href="/files/{name}#sha256={digest(pytorch, name)}">{name}</a>']))
    (folder / "pyproject.toml").write_text(
        f"""
[project]
name = "p"
version = "1"
dependencies = ["torch", "numpy"]
[[tool.uv.index]]
name = "main"
url = "{pytorch.url}"
default = true
[[tool.uv.index]]
name = "pytorch-cpu"
url = "{base(pytorch, "/whl/cpu")}"
explicit = true
[tool.uv.sources]
torch = {{ index = "pytorch-cpu" }}
"""
    )

    result = advisor("advise", *HARDWARE, cwd=folder)

    assert result.returncode == 0, result.stderr
    assert {name: p["version"] for name, p in packages(folder).items()} == {"numpy": "2.3.0", "torch": "2.8.0+cpu"}


def test_a_supplemental_index_has_only_what_no_other_index_has(
    advisor: Advisor, pytorch: PackageIndex, tmp_path: Path
) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    other = wheel_of(pytorch, "torch-extra", "1.0")
    serve(
        pytorch,
        "/whl/cpu/torch-extra/",
        page([f'<a href="/files/{other}#sha256={digest(pytorch, other)}">{other}</a>']),
    )
    (folder / "pyproject.toml").write_text(
        f"""
[tool.poetry.dependencies]
torch = "*"
torch-extra = "*"
[[tool.poetry.source]]
name = "pytorch"
url = "{base(pytorch, "/whl/cpu")}"
priority = "supplemental"
"""
    )

    options = (*HARDWARE, "--extra-index-url", pytorch.url)
    result = advisor("advise", *options, "-o", "lock.txt", "-o", "pylock.toml", cwd=folder)

    assert result.returncode == 0, result.stderr
    locked = packages(folder)
    assert (locked["torch"]["version"], locked["torch-extra"]["version"]) == ("2.8.0", "1.0")
    assert locked["torch-extra"]["index"] == base(pytorch, "/whl/cpu")
    assert f"--extra-index-url {base(pytorch, '/whl/cpu')}\n" in (folder / "lock.txt").read_text()


def test_a_page_with_links_that_cannot_be_read_is_requested_once(pytorch: PackageIndex, tmp_path: Path) -> None:
    client = build_client(pytorch, tmp_path)
    client.configuration = replace(client.configuration, find_links=("http://127.0.0.1:1/links.html",))

    messages = set()
    for name in ("numpy", "torch", "triton"):
        with pytest.raises(IndexUnreachableError) as raised:
            client.files(canonicalize_name(name))
        messages.add(id(raised.value))

    assert len(messages) == 1


def test_a_page_with_links_serves_wheels_of_many_packages(
    advisor: Advisor, pytorch: PackageIndex, tmp_path: Path
) -> None:
    # As data.pyg.org and torch_stable.html: texts are paths, addresses are encoded, nothing has a hash.
    scatter, other = wheel_of(pytorch, "torch-scatter", "2.1.2+pt28cpu"), wheel_of(pytorch, "torch-sparse", "0.6.18")
    links = [f'<a href="../files/{quoted(n)}">torch-2.8.0+cpu/{n}</a><br>' for n in (scatter, other)]
    serve(pytorch, "/whl/torch-2.8.0+cpu.html", page(links))
    address = base(pytorch, "/whl/torch-2.8.0+cpu.html")
    folder = project(tmp_path / "p", pytorch, f"--find-links {address}\ntorch-scatter\nnumpy\n")

    result = advisor("advise", *HARDWARE, cwd=folder)

    assert result.returncode == 0, result.stderr
    locked = packages(folder)
    assert locked["torch-scatter"]["version"] == "2.1.2+pt28cpu"
    assert "index" not in locked["torch-scatter"]
    assert locked["torch-scatter"]["wheels"][0]["hashes"] == {"sha256": digest(pytorch, scatter)}
    assert advisor("check", *HARDWARE, cwd=folder).returncode == 0
    assert advisor("advise", *HARDWARE, "-o", "lock.txt", cwd=folder).returncode == 0
    assert f"--find-links {address}\n" in (folder / "lock.txt").read_text()
    assert advisor("advise", *HARDWARE, "--offline", "--dry-run", cwd=folder).returncode == 0


def test_a_page_with_links_that_does_not_exist_is_named(pytorch: PackageIndex, tmp_path: Path) -> None:
    name = canonicalize_name("numpy")
    client = build_client(pytorch, tmp_path)
    client.configuration = replace(client.configuration, find_links=(base(pytorch, "/whl/none.html"),))
    with pytest.raises(IndexAnswerError, match="there is no find-links page `http"):
        client.files(name)

    client = build_client(pytorch, tmp_path, offline=True)
    client.configuration = replace(client.configuration, find_links=(base(pytorch, "/whl/other.html"),))
    with pytest.raises(OfflineError, match="the find-links page `http"):
        client.files(name)
