"""File addresses in a lock must be those of the index's page, and its indexes must be those of the project."""

from __future__ import annotations

import pytest

from tests.advisor.gate.lock_texts import (
    EVIL,
    WHEEL,
    Compare,
    Document,
    pylock,
    uv_lock,
)
from tests.package_index import PackageIndex


@pytest.mark.parametrize("place", ["wheels", "sdist"])
@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("http://packages.example.org/files/{name}", "http://packages.example.org"),
        ("{host}/other/{name}", "{host}"),
        ("{host}/files/../evil/{name}", "{host}"),
        ("{host}/files/%2e%2e/evil/{name}", "{host}"),
        ("{host}/files/{name}?x=/{name}", "{host}"),
        ("{host}@packages.example.org/files/{name}", "http://packages.example.org"),
        ("http://packages.example.org\\@{bare}/files/{name}", "http://packages.example.org\\@{bare}/files/{name}"),
        (" http://packages.example.org/files/{name}", " http://packages.example.org/files/{name}"),
        ("https://{bare}/files/{name}", "https://{bare}"),
        ("{host}/files/{name}#subdirectory=evil", "{host}/files/{name}#subdirectory=evil"),
        ("{host}/files/{name}#sha256=" + EVIL, "{host}/files/{name}#sha256=" + EVIL),
        ("file:///tmp/{name}", "file:///tmp/{name}"),
        ("file://packages.example.org/{name}", "file://packages.example.org/{name}"),
        ("evil/{name}", "evil/{name}"),
    ],
)
def test_an_address_that_is_not_on_the_index_page_is_reported(
    six: Document, compare: Compare, index: PackageIndex, place: str, address: str, origin: str
) -> None:
    file = six["sdist"] if place == "sdist" else six["wheels"][1]
    host = index.url.removesuffix("/simple/")
    fields = {"host": host, "bare": host.removeprefix("http://"), "name": file["name"]}
    file["url"] = address.format(**fields)

    assert compare("pylock.toml", pylock(six)) == {("ADV025", origin.format(**fields))}
    assert compare("uv.lock", uv_lock(six)) == {("ADV025", origin.format(**fields))}


@pytest.mark.parametrize(
    "address",
    [
        "{host}/files/{name}",
        "HTTP://{bare}/files/{name}",
        "{host}/files/six%2D1.16.0-py3-none-any.whl",
        "http://me:secret@{bare}/files/{name}",
        "{host}/files/{name}#sha256={sha256}",
    ],
)
def test_another_spelling_of_an_address_is_accepted(
    six: Document, compare: Compare, index: PackageIndex, address: str
) -> None:
    file, host = six["wheels"][0], index.url.removesuffix("/simple/")
    fields = {"host": host, "bare": host.removeprefix("http://"), "name": WHEEL, "sha256": file["hashes"]["sha256"]}
    file["url"] = address.format(**fields)

    assert compare("pylock.toml", pylock(six)) == set()
    assert compare("uv.lock", uv_lock(six)) == set()


def test_a_local_path_is_not_a_file_of_the_index(six: Document, compare: Compare) -> None:
    six["wheels"][0]["path"] = f"./{WHEEL}"

    assert compare("pylock.toml", pylock(six)) == {("ADV025", f"./{WHEEL}")}


def test_the_index_of_an_entry_for_another_platform_is_checked(six: Document, compare: Compare) -> None:
    other = {**six, "marker": "sys_platform == 'win32'", "index": "https://packages.example.org/simple"}

    findings = compare("pylock.toml", pylock({**six, "marker": "sys_platform != 'win32'"}, other))

    assert findings == {("ADV015", "https://packages.example.org/simple")}


@pytest.mark.parametrize(
    "index_key",
    [
        "HTTPS://packages.example.org/simple",
        " https://packages.example.org/simple",
        "//packages.example.org/simple",
        "\\\\packages.example.org\\simple",
        "file://packages.example.org/simple",
        "https://packages.example.org\\@{bare}",
        "{host}@packages.example.org/simple",
    ],
)
def test_an_index_with_a_lookalike_address_is_reported(
    six: Document, compare: Compare, index: PackageIndex, index_key: str
) -> None:
    host = index.url.removesuffix("/simple/")
    six["index"] = index_key.format(host=host, bare=index.url.removeprefix("http://"))

    assert {code for code, _ in compare("pylock.toml", pylock(six))} == {"ADV015"}


def test_addresses_are_compared_with_the_links_of_the_mirror(
    six: Document, compare: Compare, index: PackageIndex
) -> None:
    # The page of an index that stores its files on another host.
    for entry in index.entries["six"]:
        entry["url"] = f"https://files.example.org/x/{entry['filename']}"
    assert {code for code, _ in compare("pylock.toml", pylock(six))} == {"ADV025"}
    for file in (six["sdist"], *six["wheels"]):
        file["url"] = f"https://files.example.org/x/{file['name']}"

    assert compare("pylock.toml", pylock(six)) == set()


def test_pypis_address_of_a_file_is_accepted_behind_a_mirror(six: Document, compare: Compare) -> None:
    path = f"ab/cd/{'0' * 60}"
    six["index"] = "https://pypi.org/simple"
    for file in (six["sdist"], *six["wheels"]):
        file["url"] = f"https://files.pythonhosted.org/packages/{path}/{file['name']}"
    honest = compare("pylock.toml", pylock(six))
    other_indexes_only = compare(
        "pylock.toml", pylock(six), policy={"indexes": ["https://packages.example.org/simple"]}
    )
    six["wheels"][0]["url"] = f"https://files.pythonhosted.org.example.org/packages/{path}/{WHEEL}"
    lookalike = compare("pylock.toml", pylock(six))
    six["wheels"][0]["url"] = f"https://files.pythonhosted.org/packages/{path}/evil.whl"
    other_file = compare("pylock.toml", pylock(six))

    assert honest == set()
    assert {code for code, _ in other_indexes_only} == {"ADV015", "ADV025"}
    assert lookalike == {("ADV025", "https://files.pythonhosted.org.example.org")}
    assert other_file == {("ADV025", "https://files.pythonhosted.org")}
