"""Malformed entries of a page are left out, and no text of a page can add a line to a lock or report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from advisor.cli.console import say_error
from advisor.domain.words import visible
from advisor.index.metadata.distributions import MetadataError
from advisor.index.pages import page
from advisor.index.pages.page import parse_page
from advisor.index.pages.reader import IndexAnswerError
from advisor.locks.formats.requirements import FORMAT as REQUIREMENTS
from advisor.resolve.candidates.index import IndexCandidates
from knowledge.domain.errors import InputError
from tests.advisor.factories import build_client, build_problem, build_stack
from tests.package_index import PackageIndex

A = canonicalize_name("a")
WHEEL = "a-1.0-py3-none-any.whl"
HASH = "0123456789abcdef" * 4
MALFORMED: list[tuple[dict[str, object], str]] = [
    ({"url": None}, "`url` is not of type str"),
    ({"url": 3}, "`url` is not of type str"),
    ({"url": "http://[::1/a-1.0-py3-none-any.whl"}, "its address is malformed"),
    ({"url": "http://127.0.0.1:99999/a-1.0-py3-none-any.whl"}, "its address is malformed"),
    ({"url": "/files/a.whl\x1b[31m"}, "its address is too long or contains control characters"),
    ({"url": "/files/\ud800.whl"}, "its address is too long or contains control characters"),
    ({"url": "/" + "a" * 10_000}, "its address is too long or contains control characters"),
    ({"size": "300619"}, "`size` is not of type int"),
    ({"size": 300619.0}, "`size` is not of type int"),
    ({"size": True}, "`size` is not of type int"),
    ({"size": -5}, "`size` is not a number of bytes"),
    ({"size": 10**30}, "`size` is not a number of bytes"),
    ({"upload-time": "today"}, "`upload-time` is not a time"),
    ({"upload-time": 3}, "`upload-time` is not of type str"),
    ({"hashes": None}, "`hashes` is not of type dict"),
    ({"hashes": []}, "`hashes` is not of type dict"),
    ({"hashes": {"sha256": ""}}, "its hash is not a SHA-256"),
    ({"hashes": {"sha256": "zz"}}, "its hash is not a SHA-256"),
    ({"hashes": {"sha256": 3}}, "its hash is not a SHA-256"),
    ({"hashes": {"sha256": f"{HASH}\n--index-url http://evil.example/simple"}}, "its hash is not a SHA-256"),
    ({"core-metadata": {"sha256": "zz"}}, "its hash is not a SHA-256"),
    ({"requires-python": 3}, "`requires-python` is not of type str"),
]


@pytest.mark.parametrize(("change", "reason"), MALFORMED)
def test_a_malformed_entry_is_left_out_and_listed(
    index: PackageIndex, tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    index.separate_metadata = False
    index.add("a", "1.0")
    index.add("a", "0.9")
    index.entries["a"][0] |= change

    source = IndexCandidates(build_client(index, tmp_path), build_problem("a"))

    assert [str(c.version) for c in source.candidates(A)] == ["0.9"]
    (skipped,) = source.skipped()
    assert (skipped.reason, skipped.example) == (f"malformed on the index page: {reason}", WHEEL)


@pytest.mark.parametrize(
    ("entry", "message"), [({"filename": 3}, "3"), ({"url": "a"}, "null"), ({"filename": ["a\x1b"]}, r'["a\u001b"]')]
)
def test_an_entry_without_a_file_name_is_left_out_and_listed(
    index: PackageIndex, tmp_path: Path, entry: dict[str, object], message: str
) -> None:
    files = [entry, {"filename": WHEEL, "url": "a"}]
    page = json.dumps({"meta": {"api-version": "1.0"}, "files": files}).encode()
    index.raw["/simple/a/"] = (page, {"Content-Type": "application/vnd.pypi.simple.v1+json"})

    source = IndexCandidates(build_client(index, tmp_path), build_problem("a"))

    assert [str(c.version) for c in source.candidates(A)] == ["1.0"]
    (skipped,) = source.skipped()
    assert (skipped.reason, skipped.example) == ("malformed on the index page: `filename` is not of type str", message)


@pytest.mark.parametrize("key", ["core-metadata", "data-dist-info-metadata"])
def test_separate_metadata_may_have_an_empty_hash(index: PackageIndex, tmp_path: Path, key: str) -> None:
    index.add("a", "1.0", ["b>=1"])
    index.separate_metadata = False
    index.entries["a"][0][key] = {"sha256": None}
    client = build_client(index, tmp_path)

    (file,) = client.files(A)

    assert file.metadata_sha256 == ""
    assert [str(r) for r in client.metadata(file).requires] == ["b>=1"]


@pytest.mark.parametrize(
    "attributes",
    ['href="a.whl#sha256=zz"', f'href="a.whl#sha256={HASH}0"', 'href="a.whl" data-core-metadata="sha256=zz"'],
)
def test_only_a_sha256_in_an_html_link_is_used(attributes: str) -> None:
    body = f'<a {attributes}>{WHEEL}</a><a href="b.whl#sha256={HASH.upper()}">a-0.9-py3-none-any.whl</a>'

    listing = parse_page(body.encode(), "text/html", url="http://a.example/a/", index="http://a.example/").select()

    assert listing.malformed == ((WHEEL, "malformed on the index page: its hash is not a SHA-256"),)
    assert [file.sha256 for file in listing.files] == [HASH]


@pytest.mark.parametrize("fragment", [f"sha256={HASH}&egg=a", f"egg=a&sha256={HASH}"])
def test_a_hash_is_found_among_other_parts_of_a_fragment(fragment: str) -> None:
    # Like pip (pip/_internal/models/link.py).
    body = f'<a href="a.whl#{fragment}">{WHEEL}</a>'

    listing = parse_page(body.encode(), "text/html", url="http://a.example/a/", index="http://a.example/").select()

    assert [file.sha256 for file in listing.files] == [HASH]


def test_a_file_name_with_control_characters_is_skipped(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    index.add("a", "0.9")
    index.entries["a"][0]["filename"] = "a-1.0\x1b]0;x\x07\n-py3-none-any.whl"

    source = IndexCandidates(build_client(index, tmp_path), build_problem("a"))

    assert [str(c.version) for c in source.candidates(A)] == ["0.9"]
    (skipped,) = source.skipped()
    assert skipped.reason == "file name or version is not standard"
    assert skipped.example == r"a-1.0\x1b]0;x\x07\n-py3-none-any.whl"


def test_no_text_of_a_page_can_add_a_line_to_a_lock(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    index.add("a", "0.9")
    true = index.entries["a"][0]["hashes"]["sha256"]
    index.entries["a"][0]["hashes"] = {"sha256": f"{true}\n--index-url http://evil.example/simple"}

    stack = build_stack(index, tmp_path, build_problem("a"))
    text = REQUIREMENTS.write(tmp_path / "stack.txt", [stack])

    assert [(package.name, str(package.version)) for package in stack.packages] == [("a", "0.9")]
    assert "evil" not in text
    assert text.count("\n") == 5


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("Requires-Dist", "Requires-Dist: b @ http://evil.example/\x1b[31m"),
        ("Requires-Dist", "Requires-Dist: b; python_version >= '\x07'"),
        ("Requires-Python", "Requires-Python: >=3\x1b[31m"),
    ],
)
def test_metadata_with_control_characters_is_left_out(
    index: PackageIndex, tmp_path: Path, field: str, line: str
) -> None:
    index.add("a", "1.0", metadata=f"Metadata-Version: 2.1\nName: a\nVersion: 1.0\n{line}\n")
    client = build_client(index, tmp_path)

    with pytest.raises(MetadataError) as caught:
        client.metadata(client.files(A)[0])

    assert f"field `{field}`" in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_folded_requirement_of_metadata_is_read(index: PackageIndex, tmp_path: Path) -> None:
    text = "Metadata-Version: 2.1\nName: a\nVersion: 1.0\nRequires-Dist: b\n        >=1\n"
    index.add("a", "1.0", metadata=text)
    client = build_client(index, tmp_path)

    assert [str(r) for r in client.metadata(client.files(A)[0]).requires] == ["b>=1"]


def test_the_message_of_a_metadata_error_is_short(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", metadata=f"Metadata-Version: 2.1\nName: a\nVersion: {'x' * 1_000_000}\n")
    client = build_client(index, tmp_path)

    with pytest.raises(MetadataError) as caught:
        client.metadata(client.files(A)[0])

    assert len(str(caught.value)) < 500


def test_invalid_identifiers_of_vulnerabilities_are_replaced(index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0")
    index.vulnerabilities["a", "1.0"] = ["PYSEC-2024-1", "\x1b]0;x\x07\nfoo", "\ud800"]
    client = build_client(index, tmp_path)
    (file,) = client.files(A)

    identifiers = client.vulnerabilities(file, "a", "1.0")

    assert identifiers == ("PYSEC-2024-1", "malformed-identifier", "malformed-identifier")


def test_messages_escape_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    say_error(InputError("it says `\x1b]0;x\x07\ud800`", hint="do\u2028this"))

    assert capsys.readouterr().err == "error: it says `\\x1b]0;x\\x07\\ud800`\nhint: do\\u2028this\n"
    assert visible("größer\nals") == "größer\nals"


@pytest.mark.parametrize(
    "body",
    [
        '<a href="a.whl"><code>{0}</code></a>',
        '<a href="a.whl">\n <b><code>{0}</code></b>\n</a>',
        '<a href="a.whl"><img src="icon.png"> {0}</a>',
        '<a href="a.whl"><div>{0}</div></a>',
        '<a href="a.whl"><!-- a wheel -->{0}</a>',
        '<a href="a.whl">a-1.0<wbr>-py3-none-any.whl</a>',
        '<a href="a.whl">{0}<br>300 KB',
        '<li><a href="a.whl">{0}</li><li>300 KB</li>',
        '<tr><td><a href="a.whl">{0}<td>300 KB</td></tr>',
        '<a href="a.whl">{0}<p>300 KB</p>',
        '<a href="a.whl">{0}',
    ],
)
def test_a_link_may_contain_other_elements(body: str) -> None:
    text = body.format(WHEEL) + '<a href="b.whl">a-0.9-py3-none-any.whl</a>'

    listing = parse_page(text.encode(), "text/html", url="http://a.example/a/", index="http://a.example/").select()

    assert [(file.filename, file.url) for file in listing.files] == [
        (WHEEL, "http://a.example/a/a.whl"),
        ("a-0.9-py3-none-any.whl", "http://a.example/a/b.whl"),
    ]


LINK = b'<a href="a-1.0.tar.gz">a-1.0.tar.gz</a>'


@pytest.mark.parametrize("piece", [b"x<!---->", b"&amp;", b"x"])
def test_the_text_of_a_link_is_read_up_to_a_limit(piece: bytes) -> None:
    body = b'<a href="x">' + piece * 200_000 + b"</a>" + LINK

    listing = parse_page(body, "text/html", url="http://a.example/a/", index="http://a.example/").select()

    assert [file.filename for file in listing.files] == ["a-1.0.tar.gz"]


@pytest.mark.parametrize("kind", ["json", "objects", "html", "elements"])
def test_a_page_is_read_up_to_a_number_of_files(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(page, "PAGE_FILES", 20)
    entry = b'{"filename":"a-1.0.tar.gz","url":"a"}'

    def parse(number: int) -> int:
        json = kind in ("json", "objects")
        several = b",".join([entry] * number)
        if kind == "objects":
            several = b'{"filename":"a-1.0.tar.gz","url":"a","x":[%s]}' % b",".join([b"{}"] * number * 5)
        content = {"html": LINK * number, "elements": (LINK + b"<br/>" * 4) * number}.get(kind, b"")
        body = b'{"meta":{"api-version":"1.0"},"files":[%s]}' % several if json else content
        content_type = "application/vnd.pypi.simple.v1+json" if json else "text/html"
        listing = parse_page(body, content_type, url="http://a.example/a/", index="http://a.example/").select()
        return len(listing.files)

    limit = {"objects": 18, "elements": 16}.get(kind, 20)
    assert parse(limit) == (1 if kind == "objects" else limit)
    with pytest.raises(ValueError, match="more than"):
        parse(limit + 2)


def test_a_page_with_an_invalid_base_address_is_refused(index: PackageIndex, tmp_path: Path) -> None:
    index.page_text, index.page_type = f'<base href="http://[::1">{LINK.decode()}', "text/html"

    with pytest.raises(IndexAnswerError, match="did not answer with a project page"):
        build_client(index, tmp_path).files(A)
