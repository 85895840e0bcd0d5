"""A test double of a cluster's API server, its Job controller and its kubelets.

It uses the real wire format over HTTP, accepts only manifests that are valid by the published schemas of a Kubernetes
version, and runs the command of a pod as a process of this machine, with other paths for the mounted folders. Its Job
controller follows https://kubernetes.io/docs/concepts/workloads/controllers/job/.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import psutil
import yaml

from tests.kubernetes_double.schema import violation

VERSION = "1.30"
INDEX = "batch.kubernetes.io/job-completion-index"
TOKEN = "a-token-of-the-double"
_CONTROL_SECONDS = 0.1
_MEMORY_CHECK_SECONDS = 2.0
"""Seconds between memory checks of a pod, which read all processes of the machine."""


class StatusError(Exception):
    """Raised to answer a request with a `Status` document of a failure."""

    def __init__(self, code: int, reason: str, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": {"kind": kind},
            "code": code,
        }


@dataclass
class Pod:
    """A pod with the process that runs its command."""

    document: dict[str, Any]
    job: str
    index: int
    scratch: Path
    process: subprocess.Popen[bytes] | None = None
    log: Path = field(default_factory=Path)
    started: float = 0.0
    memory_checked: float = 0.0
    out_of_memory: bool = False

    @property
    def phase(self) -> str:
        return str(self.document["status"]["phase"])


class KubernetesDouble:
    """A cluster with two nodes; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: dict[str, dict[str, Any]] = {}
        self.config_maps: dict[str, dict[str, Any]] = {}
        self.pods: list[Pod] = []
        self.secrets: dict[str, str] = {}
        self.nodes = ["node-a", "node-b"]
        self.down = False
        self.quota = 0
        self.token = TOKEN
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._threads = [
            threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True),
            threading.Thread(target=self._control, daemon=True),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            for pod in self.pods:
                self._kill(pod)

    def kubeconfig(self, token: str | None = None) -> Path:
        """Write a kubeconfig for this cluster."""
        path = self.folder / f"kubeconfig-{uuid.uuid4().hex[:6]}"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "d", "cluster": {"server": f"http://127.0.0.1:{self._server.server_port}"}}],
            "users": [{"name": "u", "user": {"token": token or self.token}}],
            "contexts": [{"name": "c", "context": {"cluster": "d", "user": "u", "namespace": "measuring"}}],
            "current-context": "c",
        }
        path.write_text(yaml.safe_dump(document))
        return path

    def lose_node(self, node: str) -> None:
        """Kill the pods of a node: they fail with a disruption."""
        with self._lock:
            for pod in self.pods:
                if pod.document["spec"].get("nodeName") == node and pod.phase == "Running":
                    self._kill(pod)
                    pod.document["status"] |= {
                        "phase": "Failed",
                        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}],
                    }

    # Controllers

    def _control(self) -> None:
        while not self._stop.wait(_CONTROL_SECONDS):
            with self._lock:
                for name, job in list(self.jobs.items()):
                    self._reconcile(name, job)

    def _reconcile(self, name: str, job: dict[str, Any]) -> None:
        spec, status = job["spec"], job.setdefault("status", {})
        pods = [pod for pod in self.pods if pod.job == name]
        for pod in pods:
            self._update_status(pod, spec)
        succeeded = {pod.index for pod in pods if pod.phase == "Succeeded"}
        failed = {i for i in range(spec["completions"]) if i not in succeeded and self._has_failed(i, pods, spec)}
        if spec.get("suspend"):
            for pod in pods:
                if pod.phase in ("Running", "Pending"):
                    self._kill(pod)
                    self.pods.remove(pod)
        else:
            active = {pod.index for pod in pods if pod.phase in ("Running", "Pending")}
            for index in range(spec["completions"]):
                if index not in succeeded | failed | active and len(active) < spec["parallelism"]:
                    self._start(name, job, index)
                    active.add(index)
        status["completedIndexes"] = ",".join(map(str, sorted(succeeded)))
        status["failedIndexes"] = ",".join(map(str, sorted(failed)))

    def _has_failed(self, index: int, pods: list[Pod], spec: dict[str, Any]) -> bool:
        """Return whether an index has failed and is not retried."""
        failures = 0
        for pod in pods:
            if pod.index != index or pod.phase != "Failed":
                continue
            action = self._action(pod, spec)
            if action == "FailIndex":
                return True
            failures += action != "Ignore"
        return bool(failures > spec["backoffLimitPerIndex"])

    def _action(self, pod: Pod, spec: dict[str, Any]) -> str:
        conditions = {(c["type"], c["status"]) for c in pod.document["status"].get("conditions", ())}
        states = [c["state"].get("terminated", {}) for c in pod.document["status"].get("containerStatuses", ())]
        codes = {state.get("exitCode") for state in states}
        for rule in spec.get("podFailurePolicy", {}).get("rules", ()):
            if any((c["type"], c["status"]) in conditions for c in rule.get("onPodConditions", ())):
                return str(rule["action"])
            if codes & set(rule.get("onExitCodes", {}).get("values", ())):
                return str(rule["action"])
        return "Count"

    def _start(self, name: str, job: dict[str, Any], index: int) -> None:
        template = job["spec"]["template"]
        node = self.nodes[len(self.pods) % len(self.nodes)]
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{index}-{uuid.uuid4().hex[:5]}",
                "labels": {**template["metadata"]["labels"], "batch.kubernetes.io/job-name": name},
                "annotations": {INDEX: str(index)},
                "creationTimestamp": f"{time.time():.6f}",
            },
            "spec": {**template["spec"], "nodeName": node},
            "status": {"phase": "Running"},
        }
        scratch = Path(tempfile.mkdtemp(dir=self.folder, prefix="pod-"))
        pod = Pod(document=document, job=name, index=index, scratch=scratch, log=scratch / "log", started=time.time())
        self.pods.append(pod)
        container = template["spec"]["containers"][0]
        if container["image"].startswith("absent/"):
            message = f'Back-off pulling image "{container["image"]}"'
            pod.document["status"] = {
                "phase": "Pending",
                "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": message}}}],
            }
            return
        folders = self._mount(pod, name, template["spec"], container)

        def replace_mounts(text: str) -> str:
            for mount, folder in folders.items():
                text = re.sub(rf"(?<![\w/.]){re.escape(mount)}(?![\w-])", str(folder), text)
            return text

        # This machine serves as the image: its programs and certificates, without settings of the user.
        image = {k: v for k, v in os.environ.items() if not k.startswith(("ADVISOR_", "SLURM", "XDG_"))}
        variables = {**image, "JOB_COMPLETION_INDEX": str(index)}
        for entry in container["env"]:
            source = entry.get("valueFrom", {})
            if "fieldRef" in source:
                variables[entry["name"]] = node
            elif "secretKeyRef" in source:
                variables[entry["name"]] = self.secrets[source["secretKeyRef"]["name"]]
            else:
                variables[entry["name"]] = expand(replace_mounts(entry["value"]), variables)
        with pod.log.open("wb") as log:
            pod.process = subprocess.Popen(
                [expand(replace_mounts(word), variables) for word in container["command"]],
                env=variables,
                cwd=folders["/scratch"],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _mount(self, pod: Pod, job: str, spec: dict[str, Any], container: dict[str, Any]) -> dict[str, Path]:
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        folders = {}
        for mount in container["volumeMounts"]:
            folder = pod.scratch / mount["name"]
            folder.mkdir()
            folders[mount["mountPath"]] = folder
            if "configMap" in volumes[mount["name"]]:
                config_map = self.config_maps[volumes[mount["name"]]["configMap"]["name"]]
                for name, content in config_map.get("binaryData", {}).items():
                    (folder / name).write_bytes(base64.b64decode(content))
        return folders

    def _update_status(self, pod: Pod, spec: dict[str, Any]) -> None:
        """Enforce the limits and the deadline of a pod, and set its status, as a kubelet does."""
        if pod.process is None or pod.phase != "Running":
            return
        if time.monotonic() > pod.memory_checked + _MEMORY_CHECK_SECONDS:
            pod.memory_checked = time.monotonic()
            self._check_memory(pod, _bytes(spec["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]))
        deadline = spec["template"]["spec"].get("activeDeadlineSeconds")
        if deadline is not None and time.time() - pod.started > deadline:
            self._kill(pod)
            pod.document["status"] = {"phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active long"}
            return
        code = pod.process.poll()
        if code is None:
            return
        state = {"exitCode": code if code >= 0 else 128 - code}
        if pod.out_of_memory:
            state["reason"] = "OOMKilled"  # type: ignore[assignment]
        pod.document["status"] |= {
            "phase": "Succeeded" if code == 0 else "Failed",
            "containerStatuses": [{"state": {"terminated": state}}],
        }

    def _check_memory(self, pod: Pod, limit: float) -> None:
        """Kill a pod whose processes use more memory than its limit."""
        assert pod.process is not None
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pod.process.pid)
            used = sum(p.memory_info().rss for p in (process, *process.children(recursive=True)))
            if used > limit:
                pod.out_of_memory = True
                self._kill(pod)

    def _kill(self, pod: Pod) -> None:
        if pod.process is not None and pod.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pod.process.pid, signal.SIGKILL)
            pod.process.wait()

    # API

    def answer(self, verb: str, path: str, query: dict[str, str], body: Any, token: str) -> Any:
        if token != f"Bearer {self.token}":
            raise StatusError(401, "Unauthorized", "Unauthorized")
        match = re.fullmatch(r"/(?:api/v1|apis/batch/v1)/namespaces/([^/]+)/(\w+)(?:/([^/]+))?(/log)?", path)
        if match is None:
            raise StatusError(404, "NotFound", f"the server could not find {path}")
        namespace, kind, name, log = match.groups()
        if namespace == "forbidden":
            raise StatusError(403, "Forbidden", f'{kind} is forbidden: User "u" cannot create resource "{kind}"', kind)
        if namespace != "measuring":
            raise StatusError(404, "NotFound", f'namespaces "{namespace}" not found', "namespaces")
        with self._lock:
            if kind == "pods":
                return self._pod(name, query, log=bool(log))
            objects = self.jobs if kind == "jobs" else self.config_maps
            if verb == "POST":
                return self._create(objects, kind, body)
            if name not in objects:
                raise StatusError(404, "NotFound", f'{kind} "{name}" not found', kind)
            if verb == "PATCH":
                _merge(objects[name], body)
            return objects[name]

    def _pod(self, name: str | None, query: dict[str, str], *, log: bool) -> Any:
        if name is None:
            job = query["labelSelector"].partition("=")[2]
            return {"kind": "PodList", "apiVersion": "v1", "items": [p.document for p in self.pods if p.job == job]}
        pod = next((p for p in self.pods if p.document["metadata"]["name"] == name), None)
        if pod is None or not log:
            raise StatusError(404, "NotFound", f'pods "{name}" not found', "pods")
        if not pod.log.exists():
            raise StatusError(400, "BadRequest", "container is waiting to start")
        return pod.log.read_bytes()

    def _create(self, objects: dict[str, Any], kind: str, body: Any) -> Any:
        name = body["metadata"]["name"]
        if name in objects:
            raise StatusError(409, "AlreadyExists", f'{kind} "{name}" already exists', kind)
        if difference := violation(body, VERSION):
            raise StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {difference}', kind)
        if kind == "jobs" and self.quota and body["spec"]["completions"] > self.quota:
            raise StatusError(403, "Forbidden", f'jobs "{name}" is forbidden: exceeded quota: compute', kind)
        body["metadata"]["uid"] = str(uuid.uuid4())
        objects[name] = body
        return body

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                if cluster.down:
                    self.close_connection = True
                    return
                url = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                code = 200
                try:
                    answer = cluster.answer(self.command, url.path, query, body, self.headers.get("Authorization", ""))
                except StatusError as error:
                    code, answer = int(str(error.document["code"])), error.document
                plain = isinstance(answer, bytes)
                content = answer if plain else json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Type", "text/plain" if plain else "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = do_DELETE = _serve

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        return Handler


def expand(text: str, variables: dict[str, str]) -> str:
    """Replace ``$(NAME)`` in a command or a value, as a kubelet does before it starts a container.

    ``$$`` becomes ``$``, and the name of an unknown variable is not replaced; see ``command`` in
    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#entrypoint.
    """
    return re.sub(
        r"\$(?:(\$)|\(([^)]*)\))",
        lambda match: match[1] or variables.get(match[2], match[0]),
        text,
    )


def _merge(target: dict[str, Any], change: dict[str, Any]) -> None:
    for key, value in change.items():
        if isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


def _bytes(text: str) -> float:
    factors = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 1e3, "M": 1e6, "G": 1e9}
    unit = text.lstrip("0123456789.")
    return float(text.removesuffix(unit)) * factors.get(unit, 1)
