"""Who may do what on a dashboard: sign-in, sessions, roles, forms, limits, headers, and the log."""

from __future__ import annotations

import json
import logging
import re
import socket
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from advisor.dashboard import access, jobs, upload
from advisor.dashboard.access import Sessions, local_path
from advisor.dashboard.advice_worker import MOST_SECONDS
from advisor.dashboard.jobs import Jobs, Question
from advisor.dashboard.upload import MOST_BYTES
from knowledge.store.base import KnowledgeBaseError
from knowledge.store.sql import SqlKnowledgeBase
from knowledge.store.tokens import ROLES
from tests.advisor.dashboard.dashboards import Person, TeamDashboard, local_dashboard, team_dashboard

OPEN = {"/sign-in", "/static/abcdef0123456789"}
FORMS = {
    "/advice": "reader",
    "/advice/abcdef0123456789/again": "reader",
    "/advice/abcdef0123456789/change": "reader",
    "/sign-out": "reader",
    "/campaigns/abcdef0123456789/cancel": "runner",
    "/campaigns/abcdef0123456789/retry": "runner",
    "/administration/quarantine": "admin",
    "/administration/tokens": "admin",
    "/administration/tokens/abcdef0123456789/revoke": "admin",
    "/administration/trust": "admin",
}
"""Role that each form needs."""
ADMINISTRATION = {"/administration", "/api/administration"}
QUERIES = {
    "/arm": "?block=b1&label=x&arm=0",
    "/api/arm": "?block=b1&label=x&arm=0",
    "/hardware/comparison": "?machines=a100&workload=x",
}
DOCUMENT = Path(__file__).parents[3] / "docs/reference/dashboard-security.md"


def secret_of(person: Person) -> str:
    return person.cookie.partition("=")[2]


# Sessions


def test_every_page_needs_a_session(team: TeamDashboard) -> None:
    stranger = Person(team.address)

    pages = {path: stranger.get(path) for path in team.routes("GET")}
    json_pages = {path: stranger.get(path, Accept="application/json") for path in team.routes("GET")}

    assert {path for path, answer in json_pages.items() if answer.status_code != 401} == OPEN
    assert {path for path, answer in pages.items() if "/sign-in?then=" not in answer.headers.get("Location", "")} == {
        *OPEN,
        *(path for path in pages if path.startswith("/api/")),
    }
    assert "/openapi.json" in pages
    assert all("lab-a" not in answer.text for answer in (*pages.values(), *json_pages.values()))


def test_every_form_needs_a_session(team: TeamDashboard) -> None:
    stranger = Person(team.address)

    answers = {path: stranger.send("POST", path, data={"x": "y"}) for path in team.routes("POST")}

    assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(answers, 401)


def test_signing_in_begins_a_new_session(team: TeamDashboard) -> None:
    person = team.signed_in("reader")
    first = person.cookie
    token, _ = team.site.store.create_token(role="reader", source="again")

    person.sign_in(token)
    second = person.cookie
    person.cookie = first
    old = person.get("/overview")
    fixed = Person(team.address, cookie="__Host-seshat=chosen-by-someone-else")
    fixed.sign_in(token)

    assert first != second
    assert len(secret_of(fixed)) >= 43
    assert "/sign-in" in old.headers["Location"]
    assert secret_of(fixed) != "chosen-by-someone-else"


def test_the_cookie_is_only_for_the_server(team: TeamDashboard) -> None:
    token, _ = team.site.store.create_token(role="reader", source="s")

    header = Person(team.address).sign_in(token).headers["Set-Cookie"]
    name, *attributes = header.split("; ")

    assert name.startswith("__Host-seshat=")
    assert sorted(attribute.lower() for attribute in attributes) == ["httponly", "path=/", "samesite=lax", "secure"]


def test_signing_out_ends_the_session(team: TeamDashboard) -> None:
    person = team.signed_in("reader")
    cookie = person.cookie

    answer = person.post("/sign-out")
    person.cookie = cookie

    assert answer.headers["Clear-Site-Data"] == '"cache"'
    assert person.get("/api/overview").status_code == 401


def test_the_form_for_a_token_hides_it(team: TeamDashboard) -> None:
    page = Person(team.address).get("/sign-in").text

    assert 'name="token" type="password" autocomplete="current-password"' in page


def test_a_token_in_an_address_is_no_sign_in(team: TeamDashboard) -> None:
    token, _ = team.site.store.create_token(role="reader", source="s")
    person = Person(team.address)

    answers = [person.get(f"/api/overview?token={token}"), person.get(f"/sign-in?token={token}")]

    assert answers[0].status_code == 401
    assert not any("Set-Cookie" in answer.headers for answer in answers)


@pytest.mark.parametrize("change", ["revoked", "expired", "other role"])
def test_a_session_ends_with_its_token(team: TeamDashboard, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = team.site.store
    token, record = store.create_token(role="admin", source="s", days=1)
    person = Person(team.address)
    person.sign_in(token)
    before = person.get("/api/administration").status_code

    if change == "revoked":
        store.revoke_token(record.id)
    else:
        now = datetime.now(UTC).isoformat()
        changed = replace(record, expires_at=now) if change == "expired" else replace(record, role="reader")
        monkeypatch.setattr(store, "token", lambda _: changed)

    assert before == 200
    assert person.get("/api/administration").status_code == 401
    monkeypatch.undo()
    assert person.get("/api/administration").status_code == 401


@pytest.mark.parametrize(("seconds", "times"), [(3700.0, 1), (3000.0, 15)])
def test_a_session_ends_after_a_time(monkeypatch: pytest.MonkeyPatch, seconds: float, times: int) -> None:
    now = [1000.0]
    monkeypatch.setattr(access, "time", SimpleNamespace(monotonic=lambda: now[0]))
    sessions = Sessions()
    identity = sessions.add(
        access.DashboardSession(user="u", role="reader", started=now[0], last_request=now[0])
    ).identity
    present = []

    for _ in range(times):
        now[0] += seconds
        present.append(sessions.find(identity) is not None)

    assert present[-1] is False
    assert all(present[: int(12 * 3600 / seconds) if times > 1 else 0])


def test_one_person_cannot_end_the_sessions_of_others(team: TeamDashboard) -> None:
    other = team.signed_in("reader", source="other")
    token, record = team.site.store.create_token(role="reader", source="busy")
    sessions = team.site.access.sessions if team.site.access else Sessions()
    person = Person(team.address)
    person.sign_in(token)
    first = person.cookie

    for _ in range(1100):
        sessions.add(access.DashboardSession(user="busy", role="reader", token=record.id))

    person.cookie = first
    assert other.get("/api/overview").status_code == 200
    assert person.get("/api/overview").status_code == 401


# Forms


def test_every_form_needs_the_token_of_its_session(team: TeamDashboard) -> None:
    foreign = team.signed_in("admin", source="other").form_token

    for sent in ({}, {"form_token": ""}, {"form_token": foreign}, {"form_token": "\u00e9"}):
        # A person of its own for each, because of the limit of requests.
        person = team.signed_in("admin")
        answers = {path: person.send("POST", path, data=sent or {"x": "y"}) for path in FORMS}
        assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(FORMS, 403), sent
        assert all("not from a page of this session" in answer.text for answer in answers.values())
        assert person.get("/api/overview").status_code == 200
    assert set(team.routes("POST")) == {*FORMS, "/sign-in"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[evil"},
        {"Origin": "http://127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_forms_of_other_sites_are_refused(team: TeamDashboard, headers: dict[str, str]) -> None:
    person = team.signed_in("admin")
    token = person.form_token

    answers = [person.send("POST", path, data={"form_token": token}, headers=headers) for path in (*FORMS, "/sign-in")]

    assert {answer.status_code for answer in answers} == {403}
    assert person.get("/api/overview").status_code == 200


def test_a_form_of_the_dashboard_is_accepted(team: TeamDashboard) -> None:
    person = team.signed_in("admin")
    origin = team.address.removesuffix("/dashboard")

    answer = person.post(
        "/administration/tokens",
        {"source": "new", "role": "reader"},
        headers={"Origin": origin, "Sec-Fetch-Site": "same-origin"},
    )

    assert answer.status_code == 200
    assert "new" in {token.source for token in team.site.store.tokens()}


def test_loading_pages_changes_nothing(team: TeamDashboard) -> None:
    store = team.site.store
    store.add([], source="x")
    person = team.signed_in("admin")

    def state() -> object:
        observations = sorted(o.identity for o in store.observations())
        return store.tokens(), store.sources(), store.quarantined(), observations

    before = state()
    for path in team.routes("GET"):
        person.get(f"{path}{QUERIES.get(path, '')}")
        for form in FORMS:
            assert person.send("GET", form).status_code in (200, 404, 405)

    assert state() == before
    # The other requests used up what one person may send at once.
    other = team.signed_in("admin", source="another admin")
    assert {other.send(method, "/advice").status_code for method in ("PUT", "DELETE", "PATCH", "TRACE")} == {405}


# Roles


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_do_what_it_needs(team: TeamDashboard, role: str) -> None:
    person = team.signed_in(role)
    denied = ROLES[ROLES.index(role) + 1 :]

    pages = {path: person.get(f"{path}{QUERIES.get(path, '')}") for path in team.routes("GET")}
    forms = {path: person.post(path) for path in sorted(FORMS, key="/sign-out".__eq__)}

    assert {path for path, answer in pages.items() if answer.status_code == 403} == (
        ADMINISTRATION if "admin" in denied else set()
    )
    assert {path for path, answer in forms.items() if answer.status_code == 403} == {
        path for path, needed in FORMS.items() if needed in denied
    }
    assert not {answer.status_code for answer in (*pages.values(), *forms.values())} & {401, 429, 500}


@pytest.mark.parametrize("role", ["reader", "runner"])
def test_only_administrators_change_tokens_and_trust(team: TeamDashboard, role: str) -> None:
    store = team.site.store
    person = team.signed_in(role)
    _, record = store.create_token(role="reader", source="victim")

    answers = [
        person.post(f"/administration/tokens/{record.id}/revoke"),
        person.post("/administration/tokens", {"source": "mine", "role": "admin"}),
        person.post("/administration/trust", {"source": "lab-a", "trust": "0"}),
    ]

    assert {answer.status_code for answer in answers} == {403}
    assert store.token(record.id) == record
    assert "mine" not in {token.source for token in store.tokens()}
    assert {source.trust for source in store.sources()} == {1.0}


def test_a_person_cannot_read_the_questions_of_another(team: TeamDashboard) -> None:
    owner, other = team.signed_in("reader", source="owner"), team.signed_in("admin", source="other")
    address = owner.post("/advice", {"text": "numpy"}).headers["Location"]
    job = address.partition("job=")[2]

    paths = (f"/advice?job={job}", f"/api/advice/{job}", f"/advice/{job}/lock")

    assert [owner.get(path).status_code for path in paths] == [200, 200, 200]
    assert [other.get(path).status_code for path in paths] == [404, 404, 404]
    assert other.post(f"/advice/{job}/again").status_code == 404
    assert other.post(f"/advice/{job}/change").status_code == 404


# Names that a proxy sends


def test_headers_of_the_proxy_name_the_person(store: SqlKnowledgeBase) -> None:
    with team_dashboard(store, user_header="X-User", role_header="X-Role") as team:
        person = Person(team.address, {"X-User": "ann", "X-Role": "admin"})
        begun = person.get("/administration")
        status = person.get("/administration").status_code
        admin = person.cookie
        reader = Person(team.address, {"X-User": "ann", "X-Role": "reader"}, admin)
        changed = reader.get("/api/administration").status_code
        other = Person(team.address, {"X-User": "bob", "X-Role": "admin"}, admin)
        switched = other.get("/administration")
        nobody = Person(team.address, {}, admin).get("/api/administration").status_code
        form = Person(team.address).sign_in("x")

    assert (begun.status_code, begun.headers["Location"], status) == (303, "/dashboard/administration", 200)
    # A cookie is no session of another person, or of the same one with another role: a new session begins.
    assert changed == 303
    assert switched.status_code == 303
    assert other.cookie != admin
    assert nobody == 401
    assert form.status_code == 404


@pytest.mark.parametrize("role", ["", "root", "ADMIN"])
def test_a_person_without_a_role_of_the_knowledge_base_may_only_read(store: SqlKnowledgeBase, role: str) -> None:
    with team_dashboard(store, user_header="X-User", role_header="X-Role") as team:
        person = Person(team.address, {"X-User": "ann", "X-Role": role})
        person.get("/overview")

        assert person.get("/api/overview").status_code == 200
        assert person.get("/api/administration").status_code == 403


def test_headers_of_other_addresses_are_ignored(store: SqlKnowledgeBase) -> None:
    forged = {"X-User": "ann", "X-Role": "admin", "X-Forwarded-For": "192.0.2.7"}
    with team_dashboard(store, user_header="X-User", role_header="X-Role", proxies=frozenset({"192.0.2.7"})) as team:
        answers = [Person(team.address, forged).get(path) for path in ("/administration", "/api/overview")]

    assert [answer.status_code for answer in answers] == [401, 401]
    assert not any("Set-Cookie" in answer.headers for answer in answers)


def test_a_repeated_header_names_nobody(store: SqlKnowledgeBase) -> None:
    with team_dashboard(store, user_header="X-User", role_header="X-Role") as team:
        lines = ["X-User: ann", "X-User: bob", "X-Role: admin"]
        users = raw(team.address, "GET /dashboard/api/overview HTTP/1.1", *lines)
        lines = ["X-User: ann", "X-Role: admin", "X-Role: reader"]
        Person(team.address)
        roles = raw(team.address, "GET /dashboard/administration HTTP/1.1", *lines)
        cookie = roles.partition("set-cookie: ")[2].partition(";")[0]
        page = raw(team.address, "GET /dashboard/api/administration HTTP/1.1", *lines, f"Cookie: {cookie}")

    assert users.startswith("HTTP/1.1 401")
    assert roles.startswith("HTTP/1.1 303")
    assert page.startswith("HTTP/1.1 403")


@pytest.fixture
def document() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


def test_the_page_about_security_names_tests_that_exist(document: str) -> None:
    references = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", document))

    assert len(references) > 20
    for path, name in sorted(references):
        text = (DOCUMENT.parents[2] / path).read_text(encoding="utf-8")
        assert f"def {name}(" in text, (path, name)


def test_each_requirement_of_the_page_about_security_has_a_result(document: str) -> None:
    rows = [line.strip("|").split("|") for line in document.splitlines() if re.match(r"\| \d+\.\d+\.\d+", line)]

    assert len(rows) >= 50
    for number, *_, result, test in rows:
        assert result.split(":")[0].strip() in ("met", "by the proxy", "not met", "does not apply"), number
        assert ("::" in test) is result.strip().startswith("met"), number


def test_the_page_about_security_names_the_limits(document: str) -> None:
    limits = (
        f"{access.MOST_BODY_BYTES // 1024} kB",
        f"{MOST_BYTES // 1024} kB",
        f"{access._LONGEST_SECONDS / 3600:.0f} hours",
        f"{access._IDLE_SECONDS / 60:.0f} minutes",
        f"{access._MOST_FAILURES} wrong tokens",
        f"{access._REQUESTS_A_SECOND:.0f} requests a second",
        f"{access._MOST_OF_ONE} sessions",
        f"{access._BODY_SECONDS:.0f} seconds",
        f"{MOST_SECONDS:.0f} seconds",
        f"{upload._MOST_REQUIREMENTS} requirements",
    )

    assert [limit for limit in limits if limit not in document] == []
    assert all(f"`{name}: {value}`" in document for name, value in access.HEADERS.items())


# The local dashboard


def test_the_local_dashboard_needs_the_address_that_was_printed(store: SqlKnowledgeBase) -> None:
    with local_dashboard(store) as (address, sign_in):
        stranger, person = Person(address), Person(address)
        refused = [stranger.get(path) for path in ("/", "/overview", "/?token=", "/?token=wrong", "/sign-in")]
        begun = person.get(f"/overview?token={sign_in.token}&all=true")
        page = person.get("/administration")

    assert [answer.status_code for answer in refused] == [401, 401, 401, 401, 404]
    assert begun.headers["Location"] == "/overview?all=true"
    assert page.status_code == 200
    assert len(sign_in.token) >= 43


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8642", "127.0.0.1.evil.example", "localhost.evil.example", "", "[::2]"]
)
def test_the_local_dashboard_refuses_other_names_of_this_machine(store: SqlKnowledgeBase, host: str) -> None:
    with local_dashboard(store) as (address, sign_in):
        person = Person(address)
        person.get(f"/?token={sign_in.token}")
        answers = [
            person.get("/api/overview", Host=host),
            person.get("/static/style.css", Host=host),
            Person(address).get(f"/?token={sign_in.token}", Host=host),
        ]
        own = person.get("/api/overview", Host="localhost:1").status_code

    assert [answer.status_code for answer in answers] == [421, 421, 421]
    assert own == 200


def test_two_local_dashboards_have_cookies_of_their_own(store: SqlKnowledgeBase) -> None:
    with local_dashboard(store) as (_, one), local_dashboard(store) as (_, two):
        assert one.cookie != two.cookie


# Addresses


@pytest.mark.parametrize(
    "then",
    [
        "//evil.example",
        "https://evil.example/",
        "javascript:alert(1)",
        "/\\evil.example",
        "\\\\evil.example",
        "////evil.example",
        "/\t/evil.example",
        "\t//evil.example",
        " //evil.example",
        "//[evil",
        "/%2f/evil.example",
        "evil.example",
        "/x\r\nSet-Cookie: a=b",
    ],
)
def test_the_sign_in_continues_on_this_server(team: TeamDashboard, then: str) -> None:
    token, _ = team.site.store.create_token(role="reader", source="s")

    page = Person(team.address).send("GET", "/sign-in", params={"then": then})
    answer = Person(team.address).sign_in(token, then)
    location = answer.headers["Location"]

    assert page.status_code == 200
    assert answer.status_code == 303
    assert location.startswith("/dashboard/")
    assert not location.startswith("/dashboard//")
    assert "\\" not in location
    assert "Set-Cookie: a=b" not in str(answer.headers)
    assert (urlsplit(location).scheme, urlsplit(location).netloc) == ("", "")


def test_a_path_is_not_an_address_of_another_server(store: SqlKnowledgeBase) -> None:
    with local_dashboard(store) as (address, sign_in):
        lines = [f"GET //evil.example/x?token={sign_in.token} HTTP/1.1", "Host: localhost"]
        answer = raw(address, *lines)

    assert answer.startswith("HTTP/1.1 303")
    assert "location: /\r\n" in answer
    assert local_path("/a b?c=d") == "/a%20b?c=d"


def test_no_redirection_names_the_host_of_the_request(team: TeamDashboard) -> None:
    person = team.signed_in("admin")

    answers = [person.get(path, Host="evil.example") for path in ("/", "/overview/", "/static/style.css/", "/advice/")]

    assert [answer.status_code for answer in answers] == [303, 404, 404, 404]
    assert all("evil.example" not in answer.headers.get("Location", "") + answer.text for answer in answers)


# Limits


def test_an_address_with_many_wrong_tokens_has_to_wait(team: TeamDashboard) -> None:
    token, _ = team.site.store.create_token(role="reader", source="s")
    guesser = Person(team.address, {"X-Forwarded-For": "192.0.2.1"})
    other = Person(team.address, {"X-Forwarded-For": "192.0.2.2"})

    statuses = [guesser.sign_in(f"seshat_{number}").status_code for number in range(12)]
    right = guesser.sign_in(token)

    assert statuses == [401] * 10 + [429] * 2
    # The right token is refused, too: a guesser does not learn that it is the right one.
    assert right.status_code == 429
    assert 0 < int(right.headers["Retry-After"]) <= 31
    assert other.sign_in(token).status_code == 303


def test_right_tokens_do_not_count_as_failures(team: TeamDashboard) -> None:
    token, _ = team.site.store.create_token(role="reader", source="s")

    assert {Person(team.address).sign_in(token).status_code for _ in range(15)} == {303}


def test_the_address_of_a_client_is_only_believed_from_a_proxy(store: SqlKnowledgeBase) -> None:
    with team_dashboard(store, proxies=frozenset({"192.0.2.9"})) as team:
        people = [Person(team.address, {"X-Forwarded-For": f"198.51.100.{number}"}) for number in range(11)]
        statuses = [person.sign_in("wrong").status_code for person in people]

    assert statuses == [401] * 10 + [429]


def test_too_many_requests_of_a_session_are_refused(team: TeamDashboard) -> None:
    person, other = team.signed_in("reader"), team.signed_in("reader", source="other")
    assert team.site.access is not None
    team.site.access._requests.take(secret_of(person), 298)

    answers = [person.get("/static/style.css") for _ in range(10)]

    assert 429 in {answer.status_code for answer in answers}
    assert other.get("/overview").status_code == 200
    assert next(a for a in answers if a.status_code == 429).headers["Retry-After"] == "1"


def test_forms_count_as_several_requests(team: TeamDashboard) -> None:
    person = team.signed_in("reader")

    statuses = {person.send("POST", "/advice", data={"x": "y"}).status_code for _ in range(60)}

    assert statuses == {403, 429}


@pytest.mark.parametrize("path", ["/advice", "/sign-in"])
def test_large_bodies_and_bodies_without_a_length_are_refused(team: TeamDashboard, path: str) -> None:
    person = team.signed_in("reader")

    def chunks() -> Any:
        yield b"x" * 10

    large = person.send("POST", path, data=b"x" * (1536 * 1024 + 1))
    chunked = person.send("POST", path, data=chunks())
    lines = ["Content-Length: 4", "Transfer-Encoding: chunked", f"Cookie: {person.cookie}"]
    both = raw(team.address, f"POST /dashboard{path} HTTP/1.1", *lines, body="5\r\nhello\r\n0\r\n\r\n")

    assert (large.status_code, chunked.status_code) == (413, 411)
    assert both.split()[1] in ("400", "411")


def test_a_form_that_does_not_arrive_is_refused(team: TeamDashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_BODY_SECONDS", 0.3)
    lines = ["Content-Length: 1000", "Content-Type: application/x-www-form-urlencoded"]

    answer = raw(team.address, "POST /dashboard/sign-in HTTP/1.1", *lines, body="token=")

    assert answer.startswith("HTTP/1.1 408")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-www-form-urlencoded", b"&".join(b"a%d=1" % number for number in range(1000))),
        (
            "multipart/form-data; boundary=b",
            b"".join(
                b'--b\r\nContent-Disposition: form-data; name="a%d"\r\n\r\n1\r\n' % number for number in range(1000)
            )
            + b"--b--\r\n",
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="a"\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n'
            b"--c\r\n\r\n--c--\r\n--b--\r\n",
        ),
        ("multipart/form-data; boundary=b", b"--b\r\n" + b"X-Header: y\r\n" * 50_000),
        ("multipart/form-data; boundary=b", b"--b\r\n" + b"X" * 1_000_000),
        ("multipart/form-data", b"--b\r\n"),
        ("multipart/form-data; boundary=" + "b" * 5000, b"--b"),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="../../x"\r\n\r\nx\r\n' * 3 + b"--b--\r\n",
        ),
        ("application/json", b'{"token": "x"}'),
        ("text/plain", b"token=x"),
    ],
)
@pytest.mark.parametrize("path", ["/sign-in", "/advice"])
def test_a_form_with_unusual_parts_is_refused(team: TeamDashboard, path: str, kind: str, body: bytes) -> None:
    person = team.signed_in("reader")
    started = time.monotonic()

    answer = person.send("POST", path, data=body, headers={"Content-Type": kind})

    assert answer.status_code in (400, 401, 403)
    assert "Traceback" not in answer.text
    assert time.monotonic() - started < 5


def test_null_characters_are_refused(team: TeamDashboard) -> None:
    person = team.signed_in("admin")

    addresses = [person.get(path).status_code for path in ("/compare?hardware=a%00", "/observation/a%00", "/%00")]
    form = person.post("/administration/tokens", {"source": "a\0b", "role": "reader"})

    assert addresses == [400, 400, 400]
    assert form.status_code == 422
    assert len(team.site.store.tokens()) == 1


# Questions


def test_too_many_questions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(Jobs, "_answer", lambda _, job: started.append(job))
    questions = Jobs(project=None, knowledge=None)

    def ask(user: str, name: str) -> object:
        return questions.ask(Question(workload=name), None, user)

    first = [ask("a", str(number)) for number in range(4)]
    with pytest.raises(access.DeniedError, match="too many questions wait") as own:
        ask("a", "4")
    others = [ask(user, str(number)) for user in ("b", "c") for number in range(3)]
    with pytest.raises(access.DeniedError) as all_people:
        ask("d", "0")

    assert (own.value.status, own.value.headers["Retry-After"]) == (429, "60")
    assert all_people.value.status == 429
    time.sleep(0.1)
    assert len(started) == len(first) + len(others) == 10


def test_a_question_that_is_asked_again_does_not_start_a_second_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Jobs, "_answer", lambda _, job: None)
    questions = Jobs(project=None, knowledge=None)
    job = questions.ask(Question(), None, "a")

    questions.forget(job)
    same = questions.ask(Question(), None, "a")
    job.answer = {"title": "done", "is_complete": True}
    questions.forget(job)

    assert same is job
    assert questions.ask(Question(), None, "a") is not job


def test_a_worker_that_does_not_start_leaves_no_question_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise OSError(12, "Cannot allocate memory", "/private/python")

    monkeypatch.setattr(jobs, "_answers", fail)
    questions = Jobs(project=Path("/nowhere"), knowledge=None)

    job = questions.ask(Question(), None, "a")
    deadline = time.monotonic() + 30
    while not job.answer and time.monotonic() < deadline:
        time.sleep(0.01)

    assert job.answer["error"] == "the search could not be started"
    assert "private" not in str(job.answer)


def test_the_error_output_of_a_worker_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_WORKER", ("-c", "raise OSError('postgresql://me:secret@host/k, /private/file')"))

    (answer,) = jobs._answers({})

    assert answer["error"] == "the search ended without an answer"
    assert "secret" not in str(answer)


# Headers, errors, log


def test_every_response_has_the_headers(team: TeamDashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    person = team.signed_in("admin")

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    answers = [
        *(person.get(f"{path}{QUERIES.get(path, '')}") for path in team.routes("GET")),
        person.get("/static/style.css"),
        person.get("/no/such/page"),
        person.get("/arm?block=b1&label=x&arm=x"),
        person.send("PUT", "/overview", data=b"x"),
        person.send("POST", "/advice", data=b"x"),
        person.send("POST", "/sign-in", data=b"x" * 2_000_000),
        Person(team.address).get("/overview"),
        Person(team.address).get("/api/overview"),
    ]
    monkeypatch.setattr(team.site.store, "sources", broken)
    answers.append(person.get("/administration"))

    assert {200, 303, 401, 403, 404, 405, 413, 422, 500} <= {answer.status_code for answer in answers}
    for answer in answers:
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert "base-uri 'none'" in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert answer.headers["Cache-Control"] == "no-store" or "/static/style.css" in answer.url
        if answer.content:
            assert answer.headers["Content-Type"].endswith("charset=utf-8") or "json" in answer.headers["Content-Type"]


@pytest.mark.parametrize(
    "path",
    [
        "/static/..%2faccess.py",
        "/static/../access.py",
        "/static/",
        "/static/dashboard.css",
        "/.git/config",
        "/k.sqlite",
    ],
)
def test_only_the_files_of_the_pages_are_served(team: TeamDashboard, path: str) -> None:
    answer = raw(team.address, f"GET /dashboard{path} HTTP/1.1", f"Cookie: {team.signed_in('admin').cookie}")

    assert answer.startswith("HTTP/1.1 404")


def test_errors_hold_no_secret_of_the_server(team: TeamDashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    person = team.signed_in("admin")
    store = team.site.store

    def away(*_: object, **__: object) -> Any:
        raise KnowledgeBaseError("`postgresql://me@private-host/k` could not be read: /private/socket")

    def broken(*_: object, **__: object) -> Any:
        raise ZeroDivisionError("private")

    answers = []
    for failure in (away, broken):
        monkeypatch.setattr(store, "coverage", failure)
        answers += [person.get("/overview"), person.get("/api/overview"), person.get("/compare")]
        monkeypatch.undo()
    monkeypatch.setattr(store, "token", away)
    answers += [person.get("/overview"), person.get("/api/overview")]

    assert [answer.status_code for answer in answers] == [503] * 3 + [500] * 3 + [503] * 2
    assert all("private" not in answer.text and "Traceback" not in answer.text for answer in answers)
    assert "the knowledge base is not available" in answers[0].text
    assert answers[4].json()["message"] == "the dashboard failed"


def test_the_log_names_the_person_and_holds_no_secret(team: TeamDashboard, caplog: pytest.LogCaptureFixture) -> None:
    token, record = team.site.store.create_token(role="admin", source="ann")
    person = Person(team.address)

    with caplog.at_level(logging.INFO, logger="knowledge.service.access"):
        person.sign_in("seshat_guessed")
        person.sign_in(token)
        form_token = person.form_token
        created = person.post("/administration/tokens", {"source": "new", "role": "reader"}).text
        person.send("POST", "/advice", data={"form_token": "wrong-token"})
        person.get(f"/overview?token={token}")
        time.sleep(0.3)
    lines = [json.loads(r.getMessage()) for r in caplog.records if r.name == "knowledge.service.access"]
    new = created.partition("seshat_")[2].partition("<")[0]
    secrets = [token, "guessed", secret_of(person), form_token, "wrong-token", f"seshat_{new}"]

    assert len(new) >= 43
    assert [secret for secret in secrets if secret in caplog.text] == []
    assert [(line["status"], line.get("token"), line.get("source"), line.get("reason")) for line in lines[:2]] == [
        (401, None, None, "unknown token"),
        (303, record.id, "ann", None),
    ]
    assert [line["reason"].partition("`")[0] for line in lines[2:] if "reason" in line] == [
        "created token ",
        "the form is not from a page of this session",
    ]
    assert {line["token"] for line in lines[1:]} == {record.id}


def raw(address: str, *lines: str, body: str = "") -> str:
    """Send a request as it is, and return the response up to its first pause."""
    parts = urlsplit(address)
    hosted = lines if any(line.startswith("Host:") for line in lines) else (lines[0], "Host: localhost", *lines[1:])
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        connection.sendall("\r\n".join([*hosted, "Connection: close", "", body]).encode())
        received = b""
        while part := connection.recv(65536):
            received += part
    return received.decode()


def test_a_question_without_an_answer_is_only_asked_again_by_a_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Jobs, "_answer", lambda _, job: None)
    questions = Jobs(project=None, knowledge=None)
    job = questions.ask(Question(), None, "a")
    job.answer = {"error": "no network", "is_complete": True}

    same = questions.ask(Question(), None, "a")
    other = questions.ask(Question(), None, "a", retry=True)

    assert same is job
    assert other is not job


def test_the_address_without_a_slash_stays_on_this_server(team: TeamDashboard) -> None:
    server = team.address.removesuffix("/dashboard")

    answer = Person(server).get("/dashboard", Host="evil.example")

    assert (answer.status_code, answer.headers["Location"]) == (308, "/dashboard/")
    assert answer.headers["X-Frame-Options"] == "DENY"


def test_an_unknown_campaign_names_no_directory(team: TeamDashboard, tmp_path: Path) -> None:
    answer = team.signed_in("reader").get("/api/campaigns/nope")

    assert answer.status_code == 404
    assert str(tmp_path) not in answer.text
