"""The command line: exit codes, output streams and messages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from advisor.api import search
from advisor.cli.console import say_error
from knowledge.domain.errors import InputError, UnavailableError
from tests.advisor.inputs import is_error
from tests.conftest import Advisor
from tests.package_index import PackageIndex


@pytest.fixture
def project(index: PackageIndex, tmp_path: Path) -> Path:
    """A project with two packages on an index."""
    index.add("a", "1.0", ["b"])
    index.add("a", "2.0", ["b"])
    index.add("b", "1.0")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "m"\ndependencies = ["a"]\n[tool.uv]\nindex-url = "{index.url}"\n'
    )
    return folder


def test_advice_is_written_and_reported(advisor: Advisor, project: Path) -> None:
    result = advisor("advise", str(project), "--python", "3.12", "--hardware", "cpu-zen4")

    assert result.returncode == 0, result.stderr
    assert "optimal for the score over 3 versions" in result.stdout
    assert 'version = "2.0"' in (project / "pylock.toml").read_text()


def test_the_json_report_has_the_documented_shape(advisor: Advisor, project: Path) -> None:
    result = advisor("advise", str(project), "--hardware", "cpu-zen4", "--format", "json", "--dry-run")

    document = json.loads(result.stdout)
    documented = (Path(__file__).parents[2] / "docs" / "reference" / "advice-json.md").read_text()
    assert document["schema_version"] == 2
    assert {"status", "target", "objective", "baseline", "stack", "settings", "prediction", "findings", "proof"} <= set(
        document
    )
    assert set(document["stack"]["packages"][0]) == {"name", "version", "index", "why"}
    assert {"bound", "gap", "iterations", "candidates", "fetched"} <= set(document["proof"])
    assert all(f"`{key}`" in documented for key in [*document, *document["target"], *document["proof"]])
    assert not (project / "pylock.toml").exists()


def test_a_warm_cache_gives_the_same_bytes_offline(advisor: Advisor, project: Path, index: PackageIndex) -> None:
    arguments = ("advise", str(project), "--hardware", "cpu-zen4", "--format", "json")
    advisor(*arguments)
    # The second run compares its advice with the lock of the first.
    online = advisor(*arguments)
    lock = (project / "pylock.toml").read_bytes()
    index.__exit__()
    offline = advisor(*arguments, "--offline")
    index.__enter__()

    assert (offline.returncode, offline.stdout) == (0, online.stdout)
    assert (project / "pylock.toml").read_bytes() == lock


def test_credentials_are_sent_to_the_index_and_never_written(
    advisor: Advisor, project: Path, index: PackageIndex, tmp_path: Path
) -> None:
    index.password = "hunter2"
    url = index.url.replace("http://", "http://me:hunter2@")
    arguments = ("advise", str(project), "--hardware", "cpu-zen4", "--format", "json", "--index-url")

    refused = advisor(*arguments, index.url)
    allowed = advisor(*arguments, url)
    advisor(*arguments, url, "-o", str(project / "requirements.txt"))

    assert (refused.returncode, allowed.returncode) == (4, 0), allowed.stderr
    assert "it answers 401" in refused.stderr
    assert "hunter2" not in allowed.stdout + allowed.stderr
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert len(files) > 5
    assert not [p for p in files if b"hunter2" in p.read_bytes()]


def test_a_damaged_cache_is_a_warning_without_a_traceback(advisor: Advisor, project: Path, tmp_path: Path) -> None:
    arguments = ("advise", str(project), "--hardware", "cpu-zen4")
    advisor(*arguments)
    lock = (project / "pylock.toml").read_bytes()
    for path in (tmp_path / "home" / "cache" / "index").rglob("*"):
        if path.is_file():
            path.write_bytes(b"rot" + path.read_bytes())

    offline = advisor(*arguments, "--offline")
    online = advisor(*arguments)

    assert (offline.returncode, online.returncode) == (4, 0)
    assert "is damaged and was not used" in offline.stderr
    assert "Traceback" not in offline.stderr
    assert (project / "pylock.toml").read_bytes() == lock


def test_a_cold_cache_offline_exits_4(advisor: Advisor, project: Path) -> None:
    result = advisor("advise", str(project), "--hardware", "cpu-zen4", "--offline")

    assert result.returncode == 4
    assert is_error(result.stderr)
    assert not (project / "pylock.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("advise", "nowhere"), 2, "is not a directory"),
        (("advise", "project", "--hardware", "h300"), 2, "there is no hardware profile `h300`"),
        (("advise", "project", "--python", "snake"), 2, "is not a version of CPython 3.0 to 3."),
        (("advise", "project", "--platform", "amiga"), 2, "is not a platform tag"),
        (("advise", "project", "--workload", "gaming"), 2, "there is no workload `gaming`"),
        (("advise", "project", "--objective", "beauty"), 2, "there is no objective `beauty`"),
        (("advise", "project", "--format", "xml"), 2, "there is no format `xml`"),
        (("advise", "project", "--extra", "none"), 2, "has no extra `none`"),
        (("advise", "project", "--exclude-newer", "soon"), 2, "is not a date"),
        (("advise", "project", "-o", "lock.json"), 2, "is not the name of a lock"),
        (("advise", "project", "--constraint", "none.txt"), 2, "there is no such file"),
        (("advise", "-r", "unknown.txt"), 3, "is not on any configured index"),
        (("advise", "-r", "conflict.txt"), 3, "no set of versions satisfies the requirements"),
        (("advise", "project", "--knowledge", "damaged.sqlite"), 4, "file is not a database"),
        (("advise", "project", "--index-url", "http://127.0.0.1:9/simple/"), 4, "no connection"),
        (("rules", "show", "numpy2"), 2, "there is no rule `numpy2`"),
        (("pi", "show", "no-such-block"), 2, "holds no block `no-such-block`"),
        (("knowledge", "import", "damaged.jsonl"), 2, "damaged.jsonl:1: not a record"),
        (("pi", "run", "dance", "--stack", "numpy"), 2, "there is no indicator `dance`"),
        (("pi", "run", "matmul", "--stack", "six"), 2, "contains no framework"),
        (("pi", "run", "matmul", "--stack", "numpy>>1"), 2, "is not a requirement"),
        (("pi", "run", "matmul", "--stack", "numpy", "--device", "cuda"), 2, "has no NVIDIA GPU"),
        (("pi", "run", "matmul", "--stack", "numpy", "--python", "/none/python"), 2, "cannot be run"),
        (("pi", "run", "matmul", "--stack", "numpy", "--size", "huge"), 2, "has no size `huge`"),
        (("pi", "run", "matmul", "--stack", "numpy", "--shapes", "shallow"), 2, "there are no shapes `shallow`"),
        (("pi", "run", "matmul", "--stack", "numpy", "--parameters", "m=0,n=1,k=1"), 2, "`m` must be from 1"),
        (("pi", "run", "matmul", "--stack", "numpy", "--parameters", "m"), 2, "has no value"),
        (("pi", "run", "matmul", "--stack", "numpy", "--settings", "turbo=on"), 2, "there is no setting `turbo`"),
        (("pi", "run", "matmul", "--stack", "numpy", "--settings", "threads=many"), 2, "must be an integer"),
        (("pi", "run", "matmul", "--stack", "numpy", "--dtype", "float8"), 2, "there is no element type `float8`"),
        (
            ("pi", "run", "memory", "--stack", "numpy", "--parameters", "kernel=add,elements=9999999999"),
            2,
            "needs about",
        ),
        (("pi", "plan", "none.toml"), 2, "cannot be read"),
        (("pi", "campaign", "none.toml"), 2, "cannot be read"),
    ],
)
def test_invalid_input_gives_one_message_and_an_exit_code(
    advisor_here: Advisor, project: Path, index: PackageIndex, arguments: tuple[str, ...], code: int, message: str
) -> None:
    folder = project.parent
    option = f"--index-url {index.url}\n"
    (folder / "unknown.txt").write_text(f"{option}nothing-of-that-name\n")
    (folder / "conflict.txt").write_text(f"{option}a==1.0\na==2.0\n")
    (folder / "damaged.sqlite").write_text("no database at all, but long enough to look at")
    (folder / "damaged.jsonl").write_text("{")
    index.add("numpy", "2.0.0")
    index.add("six", "1.0")
    old = f'lock-version = "1.0"\ncreated-by = "{project.name}"\npackages = []\n'
    (project / "pylock.toml").write_text(old)
    if arguments[0] == "pi" and arguments[1] != "show":
        arguments = (*arguments, "--index-url", index.url)

    result = advisor_here(*arguments)

    assert (result.returncode, is_error(result.stderr)) == (code, True), result.stderr
    assert message in result.stderr
    assert result.stdout == ""
    assert (project / "pylock.toml").read_text() == old


def test_an_unknown_key_of_the_project_table_has_a_suggestion(advisor: Advisor, project: Path) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor]\nhardwear = "h200"\n')

    result = advisor("advise", str(project))

    assert result.returncode == 2
    assert "did you mean `hardware`?" in result.stderr


def test_options_override_the_project_table(advisor: Advisor, project: Path) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor]\nhardware = "h200"\npython = "3.12"\n')

    table = json.loads(advisor("advise", str(project), "--format", "json", "--dry-run").stdout)
    flag = json.loads(advisor("advise", str(project), "--format", "json", "--dry-run", "--hardware", "t4").stdout)

    assert (table["target"]["hardware"], table["target"]["python"]) == ("h200", "3.12.0")
    assert flag["target"]["hardware"] == "t4"


def test_a_python_that_the_user_chose_decides_although_the_project_excludes_it(advisor: Advisor, project: Path) -> None:
    text = (project / "pyproject.toml").read_text()
    (project / "pyproject.toml").write_text(text.replace('name = "m"', 'name = "m"\nrequires-python = ">=3.13"'))

    result = advisor("advise", str(project), "--python", "3.12")

    assert result.returncode == 0
    assert "warning: the project requires Python `>=3.13`, and the target has 3.12.0" in result.stderr


def test_help_imports_no_heavy_library() -> None:
    heavy = ("numpy", "sqlalchemy", "ortools", "requests", "pydantic", "rich", "yaml", "scipy", "networkx", "packaging")
    program = (
        "import sys\nsys.argv = ['advisor', '--help']\n"
        "from advisor.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert "advise" in result.stdout
    assert result.stderr.strip() == "[]"


@pytest.mark.parametrize("module", ["typer", "advisor.cli.check"])
def test_ctrl_c_while_modules_are_imported_ends_a_command_without_a_traceback(module: str) -> None:
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    entry, _, function = scripts["advisor"].partition(":")
    program = (
        "import os, signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Interruption:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}:\n            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interruption())\nsys.argv = ['advisor', 'check', '--help']\n"
        f"from {entry} import {function}\n{function}()\n"
    )

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_the_list_of_campaigns_opens_no_database(tmp_path: Path) -> None:
    program = (
        f"import sys\nsys.argv = ['advisor', 'pi', 'status', '--knowledge', '{tmp_path}/knowledge.sqlite']\n"
        "from advisor.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('sqlalchemy' in sys.modules)"
    )

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert result.stdout.startswith("there are no campaigns in")
    assert result.stdout.endswith("False\n")


def test_hardware_is_shown_as_text_and_json(advisor: Advisor) -> None:
    text, document = (
        advisor("hardware", "show").stdout,
        json.loads(advisor("hardware", "show", "--format", "json").stdout),
    )

    assert document["cpu"]["microarchitecture"] in text
    assert ("none found" in text) == (document["accelerators"] == [])


def test_profiles_rules_and_indicators_are_listed(advisor: Advisor) -> None:
    assert "h200" in advisor("hardware", "list").stdout
    assert "numpy2-torch" in advisor("rules", "list").stdout
    assert "https://" in advisor("rules", "show", "cuda-12.4").stdout
    assert "training_step" in advisor("pi", "list").stdout


@pytest.mark.shipped
def test_exported_observations_are_imported_without_duplicates(advisor: Advisor, tmp_path: Path) -> None:
    # One indicator is enough: reading and writing all shipped observations four times takes long.
    out = advisor("knowledge", "export", "some.jsonl", "--indicator", "fft")
    again = advisor("knowledge", "import", "some.jsonl")
    fresh = advisor("knowledge", "import", "some.jsonl", "--knowledge", "other.sqlite")
    advisor("knowledge", "export", "other.jsonl", "--indicator", "fft", "--knowledge", "other.sqlite")

    assert out.returncode == 0, out.stderr
    assert "0 added" in again.stdout
    assert fresh.returncode == 0
    assert len((tmp_path / "some.jsonl").read_text().splitlines()) > 100
    assert (tmp_path / "some.jsonl").read_bytes() == (tmp_path / "other.jsonl").read_bytes()
    assert "observations" in advisor("knowledge", "status").stdout


def test_hardware_is_shown_by_name_and_by_option(advisor_here: Advisor) -> None:
    by_name, by_option = (
        advisor_here("hardware", "show", "v100"),
        advisor_here("hardware", "show", "--hardware", "v100"),
    )

    assert by_name.returncode == by_option.returncode == 0
    assert "Tesla V100" in by_name.stdout
    assert by_name.stdout == by_option.stdout
    assert advisor_here("hardware", "show", "h300").returncode == 2


def test_a_cloud_instance_is_shown_with_facts_and_sources(advisor_here: Advisor) -> None:
    text = advisor_here("hardware", "show", "p4d.24xlarge").stdout
    document = json.loads(advisor_here("hardware", "show", "p4d.24xlarge", "--format", "json").stdout)

    assert "8 x NVIDIA A100-SXM4-40GB" in text
    assert "bfloat16 312 TFLOP/s" in text
    assert re.search(r"^source +https://", text, re.MULTILINE)
    assert document["catalogue"]["flops"]["bfloat16"] == 312e12
    assert document["catalogue"]["sources"]
    assert set(document["catalogue"]["sources"]) < set(document["source"])


def test_the_list_of_hardware_is_a_table_with_filters(advisor_here: Advisor) -> None:
    arguments = ("hardware", "list", "rtx", "--vendor", "NVIDIA", "--kind", "consumer", "--architecture", "8.9")
    lines = advisor_here(*arguments, "--min-memory", "16").stdout.splitlines()
    machines = json.loads(advisor_here(*arguments, "--min-memory", "16", "--format", "json").stdout)

    assert lines[0].split()[:2] == ["name", "accelerator"]
    assert [line.split()[0] for line in lines[1:]] == [machine["name"] for machine in machines]
    assert "rtx4090" in [machine["name"] for machine in machines]
    assert "rtx4070" not in [machine["name"] for machine in machines]
    starts = {line.index("NVIDIA GeForce") for line in lines[1:]}
    assert starts == {lines[0].index("accelerator")}


def test_instances_of_a_provider_are_listed(advisor_here: Advisor) -> None:
    names = advisor_here("hardware", "list", "--instances", "azure", "--architecture", "ampere").stdout.split()

    assert "Standard_ND96asr_v4" in names
    assert "p4d.24xlarge" not in names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("list", "--vendor", "nvidea"), "error: no profile has vendor `nvidea`"),
        (("list", "--instances", "oracle"), "error: there is no cloud provider `oracle`"),
        (("list", "--min-memory", "100000"), "error: no profile has these properties"),
        (("show", "RTX 4099"), "hint: did you mean `rtx4090`"),
    ],
)
def test_wrong_questions_about_hardware_are_answered(
    advisor_here: Advisor, arguments: tuple[str, ...], message: str
) -> None:
    result = advisor_here("hardware", *arguments)

    assert result.returncode == 2
    assert message in result.stderr


def test_a_closed_pipe_ends_the_command_without_a_message() -> None:
    read, write = os.pipe()
    os.close(read)

    result = subprocess.run(
        [sys.executable, "-m", "advisor", "rules", "list"], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)

    assert (result.returncode, result.stderr) == (141, "")


def test_a_conflict_names_another_python_if_that_can_be_read(
    advisor_here: Advisor, index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("a", "1.0", requires_python="<3.11")
    (tmp_path / "requirements.in").write_text("a\n")
    arguments = ("advise", "--dry-run", "--python", "3.12", "--index-url", index.url)

    online = advisor_here(*arguments)
    monkeypatch.setattr(search, "_first_with_stack", fail_without_index)
    offline = advisor_here(*arguments, "--cache-dir", str(tmp_path / "another cache"))

    assert (online.returncode, offline.returncode) == (3, 3)
    assert "there is a stack for Python 3.10: `--python 3.10`" in online.stderr
    assert "requires another Python" in offline.stderr
    assert "there is a stack for" not in offline.stderr


def fail_without_index(*_: object) -> None:
    raise UnavailableError("not in the cache")


def test_messages_are_wrapped_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = InputError(f"{'long ' * 30}message", hint="a hint")
    monkeypatch.setenv("COLUMNS", "80")

    say_error(error)
    assert len(capsys.readouterr().err.splitlines()) == 2
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    say_error(error)

    *lines, hint = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().err).splitlines()
    assert hint == "hint: a hint"
    assert len(lines) > 1
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(line.strip() for line in lines) == f"error: {error.message}"


@pytest.mark.parametrize(("stated", "code"), [("*", 0), (">=3.9", 0), ("3.12", 0), ("3.13", 1), (" ", 0)])
def test_a_pipfile_and_its_lock_may_require_any_python(
    advisor: Advisor, index: PackageIndex, tmp_path: Path, stated: str, code: int
) -> None:
    index.add("a", "1.0")
    source = {"url": index.url, "verify_ssl": False, "name": "own"}
    (tmp_path / "Pipfile").write_text(
        f'[[source]]\nurl = "{index.url}"\nverify_ssl = false\nname = "own"\n'
        f'[packages]\na = "*"\n[requires]\npython_version = "{stated}"\n'
    )
    meta = {"hash": {"sha256": ""}, "pipfile-spec": 6, "requires": {"python_version": stated}, "sources": [source]}
    locked = {"a": {"version": "==1.0", "index": "own"}}
    (tmp_path / "Pipfile.lock").write_text(json.dumps({"_meta": meta, "default": locked, "develop": {}}))

    result = advisor("check", str(tmp_path), "--python", "3.12", "--hardware", "cpu-zen4")

    assert result.returncode == code, result.stdout + result.stderr


def test_a_pinned_file_in_another_encoding_is_not_changed(
    advisor: Advisor, index: PackageIndex, tmp_path: Path
) -> None:
    index.add("a", "1.0")
    index.add("a", "2.0")
    content = f"--index-url {index.url}\na==1.0\n# caf\xe9\n".encode("latin-1")
    (tmp_path / "requirements.txt").write_bytes(content)
    (tmp_path / "constraints.txt").write_text("a>=2\n")

    options = ("--update", "-r", "requirements.txt", "-c", "constraints.txt", "--python", "3.12")
    result = advisor("advise", str(tmp_path), *options)

    assert (tmp_path / "requirements.txt").read_bytes() == content
    assert result.returncode == 2, result.stdout + result.stderr
    assert is_error(result.stderr), result.stderr


@pytest.mark.parametrize("command", [["check"], ["config", "show"], ["advise"]])
def test_a_project_in_an_encoding_that_toml_does_not_allow_is_an_error_of_one_sentence(
    advisor: Advisor, project: Path, command: list[str]
) -> None:
    path = project / "pyproject.toml"
    path.write_bytes(path.read_text().encode("utf-16"))

    result = advisor(*command, str(project))

    assert result.returncode == 2
    assert is_error(result.stderr), result.stderr
