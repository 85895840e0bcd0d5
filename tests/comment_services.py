"""Stand-ins for what comments on changes are written with: GitHub's program `gh`, and the API of GitLab."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

GITHUB_LIMIT = 65_536
"""Most characters of a comment: https://github.com/telia-oss/github-pr-resource/issues/259."""
GITLAB_LIMIT = 1_000_000
"""Most characters of a note: https://docs.gitlab.com/administration/instance_limits/."""
_PAGE = 2
"""Number of comments on a page, so that a few are several pages."""

_GH = """#!{python} -I
import json, os, pathlib, re, sys

state = pathlib.Path({state!r})
comments, refuses = json.loads(state.read_text())
arguments = sys.argv[1:]
method = arguments[arguments.index("--method") + 1] if "--method" in arguments else "GET"


def fail(message):
    print(json.dumps({{"message": message}}))
    sys.exit(f"gh: {{message}}")


if arguments[0] != "api" or not os.environ.get("GH_TOKEN"):
    fail("To use GitHub CLI in a GitHub Actions workflow, set the GH_TOKEN environment variable")
if (method, arguments[1]) == ("GET", "repos/group/project/issues/7/comments?per_page=100"):
    if not {{"--paginate", "--slurp"}} <= set(arguments):
        fail("only the first page")
    print(json.dumps([comments[start : start + {page}] for start in range(0, len(comments), {page})]))
    sys.exit()
if refuses:
    fail("Resource not accessible by integration (HTTP 403)")
body = json.load(sys.stdin)["body"]
if len(body) > {limit}:
    fail("Validation Failed (HTTP 422)")
one = re.fullmatch(r"repos/group/project/issues/comments/(\\d+)", arguments[1])
if method == "PATCH" and one:
    next(comment for comment in comments if comment["id"] == int(one[1]))["body"] = body
elif (method, arguments[1]) == ("POST", "repos/group/project/issues/7/comments"):
    comments.append({{"id": 1000 + len(comments), "user": {{"login": "github-actions[bot]"}}, "body": body}})
else:
    fail("Not Found (HTTP 404)")
state.write_text(json.dumps([comments, refuses]))
"""


@dataclass
class GitHub:
    """The comments on pull request 7 of ``group/project``, which a stand-in for `gh` reads and writes.

    Attributes:
        folder: Directory of the program, for the search path.
    """

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.set([])
        program = self.folder / "gh"
        program.write_text(
            _GH.format(python=sys.executable, state=str(self._state), page=_PAGE, limit=GITHUB_LIMIT), encoding="utf-8"
        )
        program.chmod(0o755)

    @property
    def _state(self) -> Path:
        return self.folder / "comments.json"

    @property
    def comments(self) -> list[dict[str, Any]]:
        comments: list[dict[str, Any]] = json.loads(self._state.read_text())[0]
        return comments

    def set(self, comments: list[dict[str, Any]], *, refuses: bool = False) -> None:
        """Replace the comments; `refuses` makes the token one that can only read."""
        self._state.write_text(json.dumps([comments, refuses]))


@dataclass
class GitLab:
    """The notes of merge request 7 of project 5, over HTTP.

    Attributes:
        token: The only token that is accepted; it is that of account 3.
        notes: The notes, in the order of their creation.
        url: Address of the API.
    """

    token: str
    notes: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def answer(self, method: str, path: str, content: bytes) -> tuple[int, Any]:
        """Return status and content of the response to a request with the token."""
        notes = "/projects/5/merge_requests/7/notes"
        if (method, path) == ("GET", "/user"):
            return 200, {"id": 3}
        if method == "GET" and (page := re.fullmatch(rf"{notes}\?per_page=100&page=(\d+)", path)):
            # The newest is the first: https://docs.gitlab.com/api/notes/.
            start = _PAGE * (int(page[1]) - 1)
            return 200, self.notes[::-1][start : start + _PAGE]
        body = json.loads(content)["body"]
        if len(body) > GITLAB_LIMIT:
            return 400, {}
        if (method, path) == ("POST", notes):
            self.notes.append({"id": 1000 + len(self.notes), "author": {"id": 3}, "body": body})
            return 201, self.notes[-1]
        if method == "PUT" and (one := re.fullmatch(rf"{notes}/(\d+)", path)):
            [note] = [note for note in self.notes if note["id"] == int(one[1])]
            note["body"] = body
            return 200, note
        return 404, {}


@contextmanager
def gitlab(token: str) -> Iterator[GitLab]:
    """Serve the API of GitLab on this machine."""
    service = GitLab(token)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            is_known = self.headers.get("PRIVATE-TOKEN") == service.token
            status, document = service.answer(self.command, self.path, content) if is_known else (401, {})
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        do_GET = do_POST = do_PUT = _answer

        def log_message(self, *_: object) -> None:
            """Keep the output of the tests clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield service
        server.shutdown()
