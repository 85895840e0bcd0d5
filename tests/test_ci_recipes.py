"""The CI recipes of the documentation work: exactly their commands, with the variables that each platform sets."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.report.check.formats.markdown import MARKER
from tests.comment_services import GITHUB_LIMIT, GITLAB_LIMIT, GitHub, gitlab
from tests.package_index import PackageIndex

ROOT = Path(__file__).parents[1]
ACTION = ROOT / ".github" / "actions" / "advise" / "action.yml"
TEMPLATE = ROOT / "templates" / "advisor.gitlab-ci.yml"
RECIPE = ROOT / "docs" / "how-to" / "gate-ci.md"
UNCHECKED = "Nothing was checked: the log of the job says why.\n"
SLOW = pytest.mark.slow
"""Each recipe installs the program and its dependencies, which takes half a minute of CPU time."""


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder and return its output."""
    own = ("-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "protocol.file.allow=always")
    completed = subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return completed.stdout.strip()


@pytest.fixture
def clone(index: PackageIndex, tmp_path: Path, network: None) -> Path:
    """A shallow clone in which a pull request pins NumPy to a version that breaks TensorFlow's ABI."""
    index.add("tensorflow-cpu", "2.15.1", code="")
    index.add("tensorflow-cpu", "2.20.0", code="")
    index.add("numpy", "1.26.4", code="")
    index.add("numpy", "2.0.2", code="")
    origin = tmp_path / "origin"
    origin.mkdir()
    git(origin, "init", "-q", "-b", "main")
    (origin / "requirements.txt").write_text("tensorflow-cpu==2.15.1\nnumpy==1.26.4\n")
    (origin / "pyproject.toml").write_text(
        f'[tool.uv]\nindex-url = "{index.url}"\n[tool.advisor]\nhardware = "cpu-zen4"\nworkload = "cnn-training"\n'
    )
    git(origin, "add", "-A")
    git(origin, "commit", "-qm", "base")
    git(origin, "switch", "-qc", "change")
    (origin / "requirements.txt").write_text("tensorflow-cpu==2.15.1\nnumpy==2.0.2\n")
    git(origin, "commit", "-qam", "change")
    git(origin, "config", "uploadpack.allowAnySHA1InWant", "true")
    folder = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", "--branch=change", f"file://{origin}", str(folder))
    return folder


@pytest.fixture
def variables(tmp_path: Path, first_knowledge: Path) -> dict[str, str]:
    """Return the variables of every platform; the dependencies are importable, so pip installs only the program."""
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("ADVISOR_", "GITHUB_", "CI_"))},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "ADVISOR_CACHE_DIR": str(tmp_path / "cache"),
        "ADVISOR_KNOWLEDGE": f"sqlite:///{shutil.copy(first_knowledge, tmp_path / 'knowledge.sqlite')}",
        "CI": "true",
    }


def base_of(clone: Path) -> str:
    """Return the commit at the head of the base branch."""
    return git(clone, "ls-remote", "origin", "refs/heads/main").split()[0]


def add_exception(clone: Path) -> None:
    """Add an exception for the change's own finding to its policy."""
    with (clone / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nignore = [{ code = "ADV006", reason = "trust me" }]\n')
    git(clone, "commit", "-qam", "excuse")


def add_hostile_modules(clone: Path) -> Path:
    """Add modules and an environment that write a file if they run; return the path of the file."""
    marker = clone.parent / "ran"
    code = f"open({str(marker)!r}, 'w').close()\n"
    for name in ("venv", "pip", "ensurepip", "advisor"):
        (clone / name).mkdir()
        (clone / name / "__init__.py").write_text(code)
        (clone / name / "__main__.py").write_text(code)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = clone / ".advisor" / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (packages / "x.pth").write_text(f"import builtins; builtins.{code}")
    git(clone, "add", "-Af")
    git(clone, "commit", "-qm", "ambush")
    return marker


def test_the_action_and_the_template_are_valid() -> None:
    for schema, path in (("vendor.github-actions", ACTION), ("vendor.gitlab-ci", TEMPLATE)):
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)

        assert completed.returncode == 0, completed.stdout + completed.stderr


def run_action(
    clone: Path,
    variables: Mapping[str, str],
    inputs: Mapping[str, str],
    *,
    number: str = "",
    only: str = "",
) -> tuple[int, str, Path]:
    """Run the steps of the composite action like a runner; return exit code, log and temporary folder.

    Args:
        clone: The checkout.
        variables: Variables of the runner.
        inputs: Inputs of the action.
        number: Number of the pull request; empty for a push.
        only: Name of the only step to run, after a run of all of them.
    """
    action = yaml.safe_load(ACTION.read_text())
    temporary = clone.parent / "runner"
    temporary.mkdir(exist_ok=True)
    output = temporary / "output"
    context = {f"inputs.{name}": str(about.get("default", "")) for name, about in action["inputs"].items()}
    context |= {f"inputs.{name}": value for name, value in inputs.items()}
    context |= {
        "github.action_path": str(ACTION.parent),
        "github.token": "ghs_secret",
        "github.event.pull_request.number": number,
    }

    def substitute(text: str) -> str:
        expanded = re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda m: context.get(m[1], ""), text)
        return substitute(expanded) if expanded != text else expanded

    log, code = "", 0
    platform = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(clone),
        "GITHUB_STEP_SUMMARY": str(temporary / "summary.md"),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_REPOSITORY": "group/project",
        "GITHUB_RUN_ID": "11",
        "RUNNER_TEMP": str(temporary),
    }
    for step in action["runs"]["steps"]:
        if output.exists():
            pairs = (line.partition("=") for line in output.read_text().splitlines())
            context |= {f"steps.check.outputs.{name}": value for name, _, value in pairs}
        if (only and step["name"] != only) or not _holds(step.get("if", ""), context, failed=bool(code)):
            continue
        own = {key: substitute(value) for key, value in step.get("env", {}).items()}
        completed = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=clone,
            env={**variables, **platform, **own},
            capture_output=True,
            text=True,
            check=False,
        )
        log, code = log + completed.stdout + completed.stderr, code or completed.returncode
    return code, log, temporary


def _holds(condition: str, context: Mapping[str, str], *, failed: bool) -> bool:
    """Whether a step runs: conditions are joined by ``&&``; without ``always()``, a step after a failure does not."""
    terms = [term.strip() for term in condition.split("&&") if term.strip()]
    if failed and "always()" not in terms:
        return False
    for term in terms:
        name, operator, value = re.fullmatch(r"(\S+)(?: (==|!=) '(.*)')?", term).groups()  # type: ignore[union-attr]
        if name == "always()":
            continue
        is_equal = context.get(name, "") == (value or "")
        if is_equal != (operator == "=="):
            return False
    return True


HOSTILE = """
END
`touch {0}` $(touch {0})
'''; touch {0}; "; touch {0}; EOF
::error title=forged::text of the change
"""


@SLOW
def test_the_github_action_annotates_the_line_and_writes_a_summary(clone: Path, variables: dict[str, str]) -> None:
    add_exception(clone)
    marker = add_hostile_modules(clone)
    code, log, temporary = run_action(clone, variables, {"base": base_of(clone)})

    assert code == 1, log
    assert not marker.exists()
    assert "::error file=requirements.txt,line=2,title=ADV006 abi-break::" in log
    assert "::warning file=pyproject.toml,line=7,title=ADV028 policy-changed::" in log
    assert "ADV006" in (temporary / "summary.md").read_text()
    assert "exit-code=1" in (temporary / "output").read_text()
    assert json.loads((temporary / "advisor.sarif").read_text())["version"] == "2.1.0"


@SLOW
def test_the_github_action_updates_its_comment(clone: Path, variables: dict[str, str], tmp_path: Path) -> None:
    github = GitHub(tmp_path / "github")
    variables["PATH"] = f"{github.folder}{os.pathsep}{variables['PATH']}"
    key = comment_key(". ")
    others = [
        comment("github-actions[bot]", "of another job"),
        comment("github-actions[bot]", comment_key(". --target other")),
        comment("somebody", f"{key}forged"),
        {"id": 9, "user": None, "body": None},
    ]
    github.set(others)
    asked = {"base": base_of(clone), "comment": "true"}

    code, log, temporary = run_action(clone, variables, asked, number="7")

    assert code == 1, log
    assert github.comments[:-1] == others
    assert github.comments[-1]["body"].startswith(f"{key}## ❌")
    assert "ADV006" in github.comments[-1]["body"]
    assert "::warning title=advisor::" not in log
    first = github.comments[-1]["id"]

    def write(text: str, *, refuses: bool = False, number: str = "7") -> tuple[str, str]:
        github.set(github.comments, refuses=refuses)
        (temporary / "advisor.md").write_text(f"{MARKER}\n{text}")
        code, log, _ = run_action(clone, variables, asked, number=number, only="Comment")
        assert (code, github.comments[:-1], github.comments[-1]["id"]) == (0, others, first), log
        assert "ghs_secret" not in log
        return log, github.comments[-1]["body"]

    hostile = HOSTILE.format(tmp_path / "ran")
    assert write(hostile) == ("", key + hostile)
    assert not (tmp_path / "ran").exists()
    _, body = write("<details>❌ a line\n" * 20_000)
    assert body.startswith(f"{key}**This comment is cut")
    assert "https://github.com/group/project/actions/runs/11" in body
    assert GITHUB_LIMIT / 2 < len(body) <= GITHUB_LIMIT
    log, kept = write("refused", refuses=True)
    assert kept == body
    assert log.count("\n") == 1
    assert log.startswith("::warning title=advisor::the comment was not written (gh: Resource not accessible by")
    assert write("a push", number="") == ("", body)
    # Nothing is checked: without a comment, one of an earlier run would look like that of this run.
    code, log, _ = run_action(clone, variables, {**asked, "directory": "absent"}, number="7")
    assert code == 2, log
    assert github.comments[-1]["body"] == comment_key("absent ") + UNCHECKED


def comment_key(job: str) -> str:
    """Return the beginning of the comment of a job with a directory and arguments."""
    return f"{MARKER}\n<!-- job: {hashlib.sha256(job.encode()).hexdigest()[:16]} -->\n"


def comment(login: str, body: str) -> dict[str, Any]:
    """Return a comment as GitHub's API shows it."""
    return {"id": len(body), "user": {"login": login}, "body": body}


def run_template(clone: Path, variables: Mapping[str, str], platform: Mapping[str, str]) -> tuple[int, str]:
    """Run the script of the template's job like a runner; return exit code and log."""
    job: dict[str, Any] = yaml.safe_load(TEMPLATE.read_text())["advisor-check"]
    own = {key: str(value).replace("$CI_PROJECT_DIR", str(clone)) for key, value in job["variables"].items()}
    common = {
        "CI_PROJECT_DIR": str(clone),
        "CI_PROJECT_PATH": "group/project",
        "CI_MERGE_REQUEST_PROJECT_PATH": "group/project",
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
        "GITLAB_CI": "true",
        "ADVISOR_REQUIREMENT": str(ROOT),
    }
    completed = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", "\n".join(job["script"])],
        cwd=clone,
        env={**variables, **own, **common, **platform},
        capture_output=True,
        text=True,
        check=False,
    )
    return completed.returncode, completed.stdout + completed.stderr


@SLOW
def test_the_gitlab_template_updates_its_comment(clone: Path, variables: dict[str, str], tmp_path: Path) -> None:
    key = comment_key(". ")
    others = [
        {"id": 1, "author": {"id": 3}, "body": "of another job"},
        {"id": 2, "author": {"id": 4}, "body": f"{key}forged"},
        {"id": 3, "author": {"id": 3}, "body": comment_key(". --target other")},
    ]
    # A link of the change to a secret is neither followed nor shown.
    (clone / "advisor.md").symlink_to("/proc/self/environ")
    with gitlab("glpat-secret") as service:
        service.notes = list(others)
        platform = {
            "CI_API_V4_URL": service.url,
            "CI_JOB_URL": "https://gitlab.example.org/job/11",
            "CI_MERGE_REQUEST_PROJECT_ID": "5",
            "CI_MERGE_REQUEST_IID": "7",
            "ADVISOR_GITLAB_TOKEN": "glpat-secret",
        }

        code, log = run_template(clone, variables, platform)

        assert code == 1, log
        assert service.notes[:-1] == others
        assert service.notes[-1]["body"].startswith(f"{key}## ❌")
        assert "ADV006" in service.notes[-1]["body"]
        assert "warning: the comment" not in log
        first = service.notes[-1]["id"]
        # Without the installation: what the check wrote is replaced.
        folder = tmp_path / "environment"
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)

        def write(text: str, token: str = "glpat-secret") -> tuple[str, str]:
            (folder / "advisor.md").write_text(f"{MARKER}\n{text}")
            return run_last_steps(token)

        def run_last_steps(token: str = "glpat-secret") -> tuple[str, str]:
            job = yaml.safe_load(TEMPLATE.read_text())["advisor-check"]
            script = [f"ENVIRONMENT={folder}", f"TOKEN={token}", "CODE=3", *job["script"][-3:]]
            completed = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", "\n".join(script)],
                env={**variables, **platform, "ADVISOR_DIRECTORY": ".", "ADVISOR_ARGUMENTS": ""},
                capture_output=True,
                text=True,
                check=False,
            )
            log = completed.stdout + completed.stderr
            assert completed.returncode == 3, log
            assert (service.notes[:-1], service.notes[-1]["id"]) == (others, first)
            assert "glpat" not in log
            return log, service.notes[-1]["body"]

        hostile = HOSTILE.format(tmp_path / "ran")
        assert write(hostile) == ("", key + hostile)
        assert not (tmp_path / "ran").exists()
        _, body = write("<details>❌ a line\n" * 100_000)
        assert body.startswith(f"{key}**This comment is cut")
        assert platform["CI_JOB_URL"] in body
        assert GITLAB_LIMIT / 2 < len(body) <= GITLAB_LIMIT
        for token in ("glpat-expired", "'glpat two\nlines'", "glpat-€"):
            log, kept = write("refused", token)
            assert kept == body
            assert log.startswith("warning: the comment was not written (")
            assert log.count("\n") == 1
        assert write("no token", "") == ("", body)
        (folder / "advisor.md").unlink()
        assert run_last_steps() == ("", key + UNCHECKED)


@SLOW
def test_the_gitlab_template_writes_its_reports(clone: Path, variables: dict[str, str]) -> None:
    add_exception(clone)
    marker = add_hostile_modules(clone)
    job: dict[str, Any] = yaml.safe_load(TEMPLATE.read_text())["advisor-check"]
    # The author chose a start commit whose policy still has an exception that was removed since.
    platform = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": git(clone, "rev-parse", "HEAD")}

    code, log = run_template(clone, variables, platform)

    assert code == 1, log
    assert not marker.exists()
    issues = json.loads((clone / job["artifacts"]["reports"]["codequality"]).read_text())
    assert [(i["check_name"], i["location"]["lines"]["begin"]) for i in issues if i["severity"] == "critical"] == [
        ("ADV006", 2)
    ]
    assert (clone / job["artifacts"]["reports"]["junit"]).read_text().startswith("<?xml")


@SLOW
def test_the_shell_recipe_fails_on_a_finding(clone: Path, variables: dict[str, str]) -> None:
    add_exception(clone)
    marker = add_hostile_modules(clone)
    recipe = RECIPE.read_text().partition("## Any other CI")[2].partition("```sh\n")[2].partition("```")[0]

    completed = subprocess.run(
        ["sh", "-e", "-c", recipe],
        cwd=clone,
        env={**variables, "ADVISOR_REQUIREMENT": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert completed.returncode == 1, completed.stderr
    assert not marker.exists()
    assert "requirements.txt:2: ADV006" in completed.stdout
    assert {"advisor.xml", "advisor.sarif"} <= {path.name for path in clone.iterdir()}


@SLOW
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="pre-commit takes hooks from a git repository")
def test_pre_commit_runs_the_hook(clone: Path, variables: dict[str, str], tmp_path: Path) -> None:
    with (clone / "pyproject.toml").open("a") as file:
        file.write('[tool.advisor.gate]\nignore = [{ code = "ADV006", reason = "trust me" }]\n')
    git(clone, "add", "pyproject.toml")
    command = [sys.executable, "-m", "pre_commit", "try-repo", str(ROOT), "advisor-check", "--all-files", "--verbose"]

    completed = subprocess.run(
        command,
        cwd=clone,
        env={**variables, "PRE_COMMIT_HOME": str(tmp_path / "pre-commit")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert completed.returncode == 1, completed.stdout + completed.stderr
    assert "advisor check" in completed.stdout
    assert "requirements.txt:2: ADV006" in completed.stdout
