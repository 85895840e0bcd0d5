"""Requirements that people send: what is accepted, what is refused, and what a worker does with them."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from pydantic import TypeAdapter

from advisor.api.options import IndexOptions, ProjectFiles, ProjectOptions, ResolutionOptions, TargetOptions
from advisor.dashboard import jobs, upload
from advisor.dashboard.advice_worker import options_of
from advisor.dashboard.upload import MOST_BYTES, Upload, UploadError, read_upload, read_upload_apart
from tests.advisor.dashboard.dashboards import TeamDashboard

_ZIP = io.BytesIO()
with zipfile.ZipFile(_ZIP, "w") as _archive:
    _archive.writestr("requirements.txt", "numpy")

REFUSED = {
    "option": (b"-r /etc/passwd", "", "is an option of pip"),
    "long option": (b"--requirement=/etc/passwd", "", "is an option of pip"),
    "index": (b"--index-url http://evil.example/simple\nnumpy", "", "is an option of pip"),
    "editable": (b"-e .", "", "is an option of pip"),
    "option after a hash": (b"numpy --hash=sha256:0 -r /etc/passwd", "", "is not a requirement"),
    "option in a second line": (b"numpy \\\n  --index-url http://evil.example", "", "is not a requirement"),
    "git": (b"git+https://evil.example/x.git", "", "is not a requirement"),
    "file": (b"numpy @ file:///etc/passwd", "", "has an address"),
    "address": (b"numpy @ https://evil.example/x.whl", "", "has an address"),
    "path": (b"/etc/passwd", "", "is not a requirement"),
    "relative path": (b"./x.whl", "", "is not a requirement"),
    "script": (b"<script>alert(1)</script>", "", "is not a requirement"),
    "null": (b"numpy\0", "", "not a text file"),
    "zip": (_ZIP.getvalue(), "requirements.txt", "not a text file"),
    "UTF-16": ("numpy".encode("utf-16"), "", "not a text file"),
    "large": (b"#" * (MOST_BYTES + 1), "", "larger than 1024 kB"),
    "many": (b"\n".join(b"a%d" % number for number in range(1001)), "", "more than 1000"),
    "empty": (b"# nothing\n\n", "", "no requirements"),
    "long": (b"numpy; " + b" and ".join([b'python_version > "3"'] * 1000), "", "is not a requirement"),
    "nested marker": (b"numpy; " + b"(" * 900, "", "is not a requirement"),
    "nested JSON": (b'{"default":' + b"[" * 100_000, "Pipfile.lock", "is not JSON"),
    "long number": (b'{"default":' + b"9" * 5000 + b"}", "Pipfile.lock", "is not JSON"),
    "JSON list": (b"[]", "x.json", "not a table"),
    "file in a lock": (b'{"default": {"numpy @ file:///etc/passwd": {}}}', "Pipfile.lock", "no valid name"),
    "option in a lock": (b'{"default": {"numpy\\n-r /etc/passwd": {}}}', "Pipfile.lock", "no valid name"),
    "surrogate in a lock": (b'{"default": {"\\ud800": {}}}', "Pipfile.lock", "no valid name"),
    "nested TOML": (b"a = " + b"[" * 100_000, "x.toml", "is not TOML"),
    "no TOML": (b"a = ", "x.toml", "is not TOML"),
    "no dependencies": (b"a = 1", "x.toml", "neither"),
    "wrong dependencies": (b"[project]\ndependencies = [1]", "x.toml", "neither"),
    "file in a project": (b'[project]\ndependencies = ["a @ file:///etc/passwd"]', "x.toml", "has an address"),
    "option in a project": (b'[project]\ndependencies = ["-r /etc/passwd"]', "x.toml", "is an option of pip"),
    "line in a project": (b'[project]\ndependencies = ["a\\n-r /etc/passwd"]', "x.toml", "is not a requirement"),
    "wrong Python": (b'[project]\nrequires-python = "x\\ny"\ndependencies = ["a"]', "x.toml", "is not valid"),
}
QUESTION: dict[str, Any] = {
    **dict.fromkeys(("target", "hardware", "python", "workload", "objective"), ""),
    "without": [],
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_a_requirement_is_refused(kind: str) -> None:
    content, name, message = REFUSED[kind]
    started = time.monotonic()

    with pytest.raises(UploadError, match=message) as caught:
        read_upload(content, name)

    assert len(caught.value.message) < 400
    assert caught.value.message.isprintable()
    assert time.monotonic() - started < 3


def test_names_versions_extras_and_markers_are_accepted() -> None:
    text = b"""# a comment
torch[opt-einsum] >= 2.4 ; python_version < "3.13"  # another
numpy==2.0.2 \\
    --hash=sha256:0011 \\
  \t --hash=sha256:2233
scipy"""
    project = b'[project]\nrequires-python = ">=3.10"\ndependencies = ["numpy <2"]'
    lock = b'[[package]]\nname = "NumPy"\n[[package]]\nname = "own"\nsource = {virtual = "."}'

    assert read_upload(text).requirements == (
        'torch[opt-einsum]>=2.4; python_version < "3.13"',
        "numpy==2.0.2",
        "scipy",
    )
    assert read_upload(project, "pyproject.toml") == Upload(requirements=("numpy<2",), python=">=3.10")
    assert read_upload(lock, "uv.lock") == Upload(requirements=("numpy",), is_lock=True)
    assert read_upload_apart(project, "pyproject.toml") == read_upload(project, "pyproject.toml")


_LINES = st.lists(
    st.sampled_from(
        ["numpy", "torch>=2", "-r x", "a @ file:///x", "[project]", "dependencies = [", '"numpy"', "]", "{", "}", '"']
    )
    | st.text(max_size=20),
    max_size=8,
).map(lambda lines: "\n".join(lines).encode("utf-8", errors="surrogatepass"))
_NAMES = st.sampled_from(["", "requirements.txt", "pyproject.toml", "uv.lock", "Pipfile.lock", "x.json", "../../x\0"])


@given(content=st.binary(max_size=300) | _LINES, name=_NAMES | st.text(max_size=10))
def test_any_upload_gives_requirements_without_addresses_or_an_error(content: bytes, name: str) -> None:
    try:
        result = read_upload(content, name)
    except UploadError:
        return

    assert result.requirements
    for text in result.requirements:
        requirement = Requirement(text)
        assert requirement.url is None
        assert len(text.splitlines()) == 1
        assert not text.startswith("-")


def test_a_text_that_takes_long_to_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "_MOST_SECONDS", 1)
    key = ".".join(["a"] * 250_000)
    started = time.monotonic()

    with pytest.raises(UploadError, match="takes too long to read"):
        read_upload_apart(f"{key} = 1\nb = 2".encode(), "x.toml")

    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "content", [b"a" + b" " * 1_000_000 + b"x", b"numpy" + b" --hash=x" * 100_000, b"a\\\n" * 300_000]
)
def test_long_lines_are_read_in_time(content: bytes) -> None:
    started = time.monotonic()

    with contextlib.suppress(UploadError):
        read_upload(content)

    assert time.monotonic() - started < 3


@pytest.mark.parametrize("kind", ["option", "file", "script", "zip", "null", "nested TOML", "surrogate in a lock"])
def test_a_refused_upload_is_reported_on_the_page(team: TeamDashboard, questions: list[Any], kind: str) -> None:
    content, name, message = REFUSED[kind]
    person = team.signed_in("reader")

    answer = person.post("/advice", files={"file": (name or "requirements.txt", content)})

    assert answer.status_code == 422
    assert message in answer.text
    assert "<script>alert" not in answer.text
    assert questions == []


def test_a_file_of_ten_megabytes_is_refused(team: TeamDashboard) -> None:
    answer = team.signed_in("reader").post("/advice", files={"file": ("requirements.txt", b"#" * 10_000_000)})

    assert answer.status_code == 413


def test_the_name_of_a_file_is_never_a_path(team: TeamDashboard, questions: list[Any]) -> None:
    person = team.signed_in("reader")

    answer = person.post("/advice", files={"file": ("../../../../tmp/evil.txt", b"numpy")})
    wait_for(questions)

    assert answer.status_code == 303
    assert "evil" not in json.dumps(questions)


@pytest.mark.parametrize("field", ["hardware", "python", "workload", "objective"])
@pytest.mark.parametrize(
    "value", ["/etc/passwd", "../../etc/passwd", "file:///etc/passwd", "x.toml", "--help", "<script>"]
)
def test_choices_are_only_those_of_the_form(team: TeamDashboard, questions: list[Any], field: str, value: str) -> None:
    answer = team.signed_in("reader").post("/advice", {"text": "numpy", field: value})

    assert answer.status_code == 422
    assert "<x>" not in answer.text
    assert questions == []


@pytest.mark.parametrize("path", ["/hardware?name={}", "/hardware/comparison?machines={}&workload=llama3_8b"])
@pytest.mark.parametrize("name", ["/etc/passwd", "../../x.json", "file:///etc/passwd"])
def test_a_name_of_hardware_is_never_a_file(team: TeamDashboard, path: str, name: str) -> None:
    answer = team.signed_in("reader").get(path.format(name))

    assert answer.status_code == 404
    assert "there is no hardware profile" in answer.text


def test_a_comparison_has_few_machines(team: TeamDashboard) -> None:
    names = " ".join(["a100"] * 21)

    answer = team.signed_in("reader").get(f"/hardware/comparison?machines={names}&workload=x")

    assert answer.status_code == 422


def test_a_worker_gets_only_the_requirements(team: TeamDashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[dict[str, str]] = []

    def answers(question: dict[str, Any]) -> Iterator[dict[str, Any]]:
        directory = Path(question["directory"])
        files.append({path.name: path.read_text() for path in directory.rglob("*")})
        assert directory.stat().st_mode & 0o077 == 0
        yield {"error": "x", "details": [], "hint": "", "is_complete": True}

    monkeypatch.setattr(jobs, "_answers", answers)
    person = team.signed_in("reader")
    person.post("/advice", {"text": "numpy<2\ntorch"})
    wait_for(files)
    person.post(
        "/advice", files={"file": ("pyproject.toml", b'[project]\nrequires-python=">=3.10"\ndependencies=["numpy"]')}
    )
    wait_for(files, 2)

    assert files[0] == {"requirements.txt": "numpy<2\ntorch\n"}
    assert list(files[1]) == ["pyproject.toml"]
    assert "build-system" not in files[1]["pyproject.toml"]


def test_a_worker_builds_nothing(tmp_path: Path) -> None:
    options = options_of({**QUESTION, "knowledge": None, "directory": str(tmp_path)})

    assert not options.resolution.build_sdists
    assert not options.resolution.build_project


def test_a_worker_imports_nothing_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("advisor", "json", "tomllib", "packaging"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    monkeypatch.chdir(tmp_path)

    (answer,) = jobs._answers({**QUESTION, "directory": str(tmp_path / "none"), "knowledge": str(tmp_path / "k")})
    sent = read_upload_apart(b"numpy")

    assert not (tmp_path / "executed").exists()
    assert "ended without an answer" not in answer["error"]
    assert sent.requirements == ("numpy",)


def test_a_worker_does_not_name_the_database(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy")
    knowledge = "postgresql://me:secret@127.0.0.1:1/private"

    (answer,) = jobs._answers({**QUESTION, "directory": str(tmp_path), "knowledge": knowledge})

    assert answer["error"] == "the knowledge base is not available"
    assert not {word for word in ("secret", "private", "127.0.0.1") if word in str(answer)}


@pytest.mark.parametrize("program", ["x = bytearray(20 * 2**30)", "open('large', 'wb').truncate(2 * 2**30)"])
def test_a_worker_has_limits(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.dashboard import advice_worker

    code = f"""
from advisor.dashboard import advice_worker
def answer(_):
    {program}
    yield {{"title": "no limit", "is_complete": True}}
advice_worker.answers_to = answer
advice_worker.main()
"""
    assert advice_worker.MOST_SECONDS <= 300
    monkeypatch.chdir(tmp_path)

    monkeypatch.setattr(jobs, "_WORKER", ("-c", code))

    (answer,) = jobs._answers({})

    assert answer["error"] == "the search ended without an answer"


def test_a_worker_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_WORKER", ("-c", "import time; time.sleep(60)"))
    monkeypatch.setattr(jobs, "MOST_SECONDS", 0.5)

    started = time.monotonic()
    (answer,) = jobs._answers({})

    assert answer["error"].startswith("the search took longer than")
    assert time.monotonic() - started < 20


def test_the_own_project_is_only_used_if_there_is_one(team: TeamDashboard, questions: list[Any]) -> None:
    answer = team.signed_in("reader").post("/advice", {"own_project": "yes"})

    assert answer.status_code == 422
    assert questions == []


def test_the_same_question_is_asked_once(team: TeamDashboard, questions: list[Any]) -> None:
    person = team.signed_in("reader")

    addresses = {person.post("/advice", {"text": "numpy"}).headers["Location"] for _ in range(2)}

    assert len(addresses) == 1


def wait_for(entries: list[Any], number: int = 1) -> None:
    """Wait until a thread has added entries to a list."""
    deadline = time.monotonic() + 30
    while len(entries) < number and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(entries) >= number


def test_a_worker_has_the_options_that_the_dashboard_was_started_with(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy")
    started = ProjectOptions(
        target=TargetOptions(hardware="h100"),
        resolution=ResolutionOptions(workload="bert-inference", allow=("reduced-precision",), build_sdists=True),
        indexes=IndexOptions(offline=True, cache_directory=tmp_path / "cache"),
    )
    sent = TypeAdapter(ProjectOptions).dump_python(started, mode="json")
    question = {**QUESTION, "directory": str(tmp_path), "knowledge": None, "options": sent}

    own = options_of({**question, "is_upload": False})
    other = options_of({**question, "is_upload": True, "hardware": "v100", "workload": "cnn-training"})
    (answer,) = jobs._answers(
        {**question, "is_upload": False, "hardware": "cpu-zen4", "knowledge": str(tmp_path / "k")}
    )

    assert own == replace(started, files=ProjectFiles(directory=tmp_path))
    assert (other.target.hardware, other.resolution.workload) == ("v100", "cnn-training")
    assert other.resolution.allow == ("reduced-precision",)
    assert not other.resolution.build_sdists
    assert other.indexes.offline
    assert "not in the cache" in answer["error"]


def test_parts_of_a_project_that_are_not_used_are_named() -> None:
    text = b'[project]\ndependencies = ["torch"]\n[tool.advisor]\nworkload = "x"\n[dependency-groups]\na = ["b"]'

    sent = read_upload_apart(text, "pyproject.toml")

    assert sent.left_out == ("[tool.advisor]", "[dependency-groups]")


def test_a_worker_ends_with_the_dashboard(tmp_path: Path) -> None:
    code = """
import subprocess, sys
worker = subprocess.Popen([sys.executable, "-P", "-m", "advisor.dashboard.advice_worker"], stdin=subprocess.PIPE,
    start_new_session=True)
print(worker.pid, flush=True)
"""
    identifier = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    deadline = time.monotonic() + 60

    while Path(f"/proc/{identifier}").exists() and time.monotonic() < deadline:
        time.sleep(0.2)

    assert not Path(f"/proc/{identifier}").exists()
