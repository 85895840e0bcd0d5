"""Advice: the recommended stack of the project, or of requirements that a person sends; and what constraints cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile

from advisor.api.context import load_project
from advisor.api.option import option_fields
from advisor.api.options import ProjectFiles, ProjectOptions
from advisor.dashboard.access import DeniedError, own_form, session_of
from advisor.dashboard.advice_worker import LOCK
from advisor.dashboard.jobs import Job, Jobs, Question
from advisor.dashboard.site import Site, answer, links_of, site_of
from advisor.dashboard.upload import MOST_BYTES, Upload, read_upload_apart
from advisor.resolve.score.criteria import OBJECTIVES
from knowledge.domain.errors import AdvisorError, InputError
from knowledge.estimate.workloads import workload_catalogue
from knowledge.hardware.shipped_machines import cloud_instances, find_machine, shipped_machines

router = APIRouter()
_PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


def jobs_of(site: Site) -> Jobs:
    """Return the questions of a dashboard."""
    jobs: Jobs = site.memory.setdefault(
        "jobs", Jobs(project=site.project, knowledge=site.knowledge, options=site.options)
    )
    return jobs


def command_of(site: Site, question: Question, upload: Upload | None) -> str:
    """Return the command line that prints the same; that of an upload is for its requirements as `requirements.txt`."""
    words = ["advise", "--dry-run"]
    if upload is not None:
        words += ["-r", "requirements.txt"]
    elif site.project is not None and site.project != Path.cwd():
        words.insert(1, str(site.project))
    words += started_with(site.options)
    for name in ("target", "hardware", "python", "workload", "objective"):
        if value := getattr(question, name):
            words += [f"--{name}", value]
    return site.command(*words)


def started_with(options: ProjectOptions) -> Iterator[str]:
    """Yield the words of a command line for the options that the dashboard was started with."""
    parts: tuple[Any, ...] = (options.target, options.resolution, options.indexes)
    for part in parts:
        group: Any = type(part)
        for field in option_fields(group):
            value = getattr(part, field.name)
            if value == field.default or not field.option.flags or field.name == "knowledge":
                continue
            flag = field.option.names[0]
            if field.kind == "boolean":
                yield flag if value else f"--no-{flag.removeprefix('--')}"
            else:
                for item in value if field.kind == "list" else (value,):
                    yield from (flag, str(item))


def targets_of(site: Site) -> tuple[str, ...]:
    """Return the names of the targets of the dashboard's own project; its advice says why it cannot be read."""
    if site.project is None:
        return ()
    try:
        project = load_project(ProjectFiles(directory=site.project), report=False)
    except AdvisorError:
        return ()
    return tuple(project.settings.get("targets", {}))


def choices() -> dict[str, Any]:
    """Return the choices of the form."""
    return {
        "hardware": [*shipped_machines(), *cloud_instances()],
        "workloads": list(workload_catalogue()),
        "objectives": list(OBJECTIVES),
        "pythons": _PYTHONS,
    }


@router.get("/advice", response_class=HTMLResponse, include_in_schema=False)
def page(request: Request, job: str = "", target: str = "") -> HTMLResponse:
    """Show the advice for the project or for what was sent, or the form."""
    site, user = site_of(request), session_of(request).user
    current = jobs_of(site).find(job, user) if job else None
    if current is None and site.project is not None:
        names = targets_of(site)
        question = Question(target=target if target in names else next(iter(names), ""))
        current = jobs_of(site).ask(question, None, user)
    if current is not None and request.headers.get("hx-request"):
        return _part(request, current)
    targets = targets_of(site) if current is not None and current.upload is None else ()
    return answer(
        request,
        "advice_page.html",
        page="advice",
        job=current,
        choices=choices(),
        targets=targets,
        **_parts(site, current),
    )


@router.get("/advice/{identity}/what-if", response_class=HTMLResponse, include_in_schema=False)
def what_if(request: Request, identity: str) -> HTMLResponse:
    """Show the constraints, with their prices as soon as these are known."""
    job = jobs_of(site_of(request)).find(identity, session_of(request).user)
    return answer(request, "what_if_part.html", page="advice", job=job, **_parts(site_of(request), job))


@router.get("/advice/form", response_class=HTMLResponse, include_in_schema=False)
def form_page(request: Request) -> HTMLResponse:
    """Show the form for requirements."""
    return answer(
        request,
        "advice_page.html",
        page="advice",
        job=None,
        choices=choices(),
        targets=(),
        **_parts(site_of(request), None),
    )


def _part(request: Request, job: Job) -> HTMLResponse:
    return answer(request, "advice_part.html", page="advice", job=job, **_parts(site_of(request), job))


def _parts(site: Site, job: Job | None) -> dict[str, Any]:
    html = Markup(job.answer.get("html", "")) if job is not None else Markup("")
    command = command_of(site, job.question, job.upload) if job is not None else ""
    return {"html": html, "command": command, "prices": job.answer.get("prices", []) if job is not None else []}


@router.post("/advice", include_in_schema=False)
async def ask(request: Request) -> Response:
    """Ask for advice about requirements that the form holds."""
    form = await own_form(request)
    job = _ask(request, _question(form), await _upload(form, site_of(request).project))
    return RedirectResponse(links_of(request).page("advice", job=job.identity), status_code=303)


@router.post("/advice/{identity}/change", include_in_schema=False)
async def change(request: Request, identity: str) -> Response:
    """Ask again with other choices: without some constraints, or with the price of each."""
    form = await own_form(request)
    before = jobs_of(site_of(request)).find(identity, session_of(request).user)
    listed = before.answer.get("constraints", [])
    with_ = {str(text) for text in form.getlist("constraint")}
    without = tuple(text for text in listed if text not in with_) if "constraints" in form else before.question.without
    question = replace(before.question, without=without)
    job = _ask(request, question, before.upload)
    return RedirectResponse(links_of(request).page("advice", job=job.identity), status_code=303)


@router.post("/advice/{identity}/again", include_in_schema=False)
async def again(request: Request, identity: str) -> Response:
    """Ask the same question again: the project or the index may have changed."""
    await own_form(request)
    jobs = jobs_of(site_of(request))
    before = jobs.find(identity, session_of(request).user)
    jobs.forget(before)
    job = _ask(request, before.question, before.upload)
    return RedirectResponse(links_of(request).page("advice", job=job.identity), status_code=303)


def _ask(request: Request, question: Question, upload: Upload | None) -> Job:
    return jobs_of(site_of(request)).ask(question, upload, session_of(request).user, retry=True)


@router.get("/advice/{identity}/lock", response_class=PlainTextResponse, include_in_schema=False)
def lock(request: Request, identity: str) -> Response:
    """Return the lock of an advice."""
    job = jobs_of(site_of(request)).find(identity, session_of(request).user)
    if "lock" not in job.answer:
        raise DeniedError(404, "this question has no lock", "wait for its answer")
    headers = {"Content-Disposition": f'attachment; filename="{LOCK}"'}
    return PlainTextResponse(job.answer["lock"], headers=headers)


@router.get("/api/advice/{identity}")
def record(request: Request, identity: str) -> dict[str, Any]:
    """Return a question and its answer: `advice` is what `advisor advise --format json` prints.

    It is null until the answer is ready; `error` says why there is none.
    """
    job = jobs_of(site_of(request)).find(identity, session_of(request).user)
    own = {name: job.answer.get(name) for name in ("error", "details", "hint", "constraints", "prices", "gain")}
    return {"question": asdict(job.question), "seconds": job.seconds, "advice": job.answer.get("document"), **own}


def _question(form: FormData) -> Question:
    """Return the question of a form; only names that the form offers are accepted."""

    def text(name: str) -> str:
        value = form.get(name, "")
        return value.strip() if isinstance(value, str) else ""

    question = Question(
        hardware=text("hardware"), python=text("python"), workload=text("workload"), objective=text("objective")
    )
    # A path would be a file of the server.
    if question.hardware not in ("", "detect") and find_machine(question.hardware) is None:
        raise DeniedError(422, f"there is no hardware profile `{question.hardware[:80]}`", "the field lists them")
    for value, names, what in (
        (question.python, _PYTHONS, "Python version"),
        (question.workload, workload_catalogue(), "workload"),
        (question.objective, OBJECTIVES, "objective"),
    ):
        if value and value not in names:
            raise DeniedError(422, f"there is no {what} `{value[:80]}`", "the field lists them")
    return question


async def _upload(form: FormData, project: Path | None) -> Upload | None:
    """Return the requirements of a form; ``None`` for the dashboard's own project, if there is one."""
    if form.get("own_project") and project is not None:
        return None
    upload, pasted = form.get("file"), form.get("text", "")
    try:
        if isinstance(upload, UploadFile) and upload.filename:
            return await run_in_threadpool(read_upload_apart, await upload.read(MOST_BYTES + 1), upload.filename)
        return await run_in_threadpool(read_upload_apart, pasted.encode() if isinstance(pasted, str) else b"")
    except InputError as error:
        raise DeniedError(422, error.message, error.hint) from None
