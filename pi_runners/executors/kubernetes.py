"""Runs batches on Kubernetes, through its API: a batch is an Indexed Job.

Tasks share no file system with the submitting process: they read their inputs from a ConfigMap, and write results to
their output and, if configured, to a service. Kubernetes keeps the output as long as the Job (``ttl_hours``), and
rotates it at 10 MiB by default (the kubelet's ``containerLogMaxSize``); therefore the output is also stored in the
batch's directory whenever it is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import urllib3

from knowledge.domain.extras import MissingExtraError, needs_extra
from knowledge.domain.hardware import HardwareProfile
from pi_runners.executors.base import Batch, EngineState, Executor, ExecutorError, RefusedError, TaskStatus, tail_of
from pi_runners.executors.manifests import KubernetesOptions, manifests
from pi_runners.harness.settings import parse_number_list

_SECONDS = 30
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_INDEX = "batch.kubernetes.io/job-completion-index"
# Reasons of a waiting container that need an action of the user:
# https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/images/types.go
_PERMANENT_REASONS = re.compile(r"ImagePull|ErrImage|InvalidImage|CreateContainer|RunContainerError")


class MissingClientError(MissingExtraError, RefusedError):
    """Raised when the Kubernetes client is not installed: no task runs, and the installation is wrong."""


class KubernetesExecutor(Executor):
    """A namespace of a cluster."""

    name = "kubernetes"
    options: KubernetesOptions
    sees_files = False

    def __init__(self, options: KubernetesOptions | None = None, hardware: HardwareProfile | None = None) -> None:
        self.options = options or KubernetesOptions()
        self._hardware = hardware

    def check(self) -> None:
        """Check that the client is installed and a cluster configured; the cluster is not asked."""
        _ = self._client

    def submit(self, batch: Batch) -> str:
        """Create the ConfigMap and the Job, unless they exist."""
        config, job = self.manifests(batch)
        self._request(self._core.create_namespaced_config_map, body=config, ignore=_exists)
        self._request(self._jobs.create_namespaced_job, body=job, ignore=_exists)
        created = self._read_job(batch.name)
        if created is not None:
            # As owner of the ConfigMap, the Job takes it along when it is deleted.
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": batch.name, "uid": created["metadata"]["uid"]}
            owned = {"metadata": {"ownerReferences": [owner]}}
            self._request(self._core.patch_namespaced_config_map, name=batch.name, body=owned)
        return batch.name

    def manifests(self, batch: Batch) -> list[dict[str, Any]]:
        """Return the manifests of a batch: a ConfigMap, then a Job."""
        return manifests(batch, self.options, self._hardware)

    def find(self, batch: Batch) -> str | None:
        return None if self._read_job(batch.name) is None else batch.name

    def poll(self, batch: Batch, handle: str) -> tuple[TaskStatus, ...]:
        job = self._read_job(handle)
        if job is None:
            reason_lost = "the Job does not exist any more: it was deleted, or its time to live is over"
            return tuple(TaskStatus(task=task, state="lost", reason=reason_lost) for task in batch.tasks)
        pods, status, statuses = self._pods(handle), job.get("status", {}), []
        completed = parse_number_list(status.get("completedIndexes") or "")
        failed = parse_number_list(status.get("failedIndexes") or "")
        for index, task in enumerate(batch.tasks):
            pod = pods.get(index, [{}])[-1]
            state, reason = _active_state(pod)
            if index in completed:
                state, reason = "done", ""
            elif index in failed:
                state, reason = _failed_state(pod)
            elif job["spec"].get("suspend"):
                state, reason = "cancelled", ""
            node = str(pod.get("spec", {}).get("nodeName", ""))
            statuses.append(TaskStatus(task=task, state=state, node=node, reason=reason))
        return tuple(statuses)

    def cancel(self, batch: Batch, handle: str) -> None:
        """Suspend the Job, which stops its running tasks; the output of all tasks is stored first."""
        for task in batch.tasks:
            self.output(batch, handle, task)
        if self._read_job(handle) is not None:
            self._request(self._jobs.patch_namespaced_job, name=handle, body={"spec": {"suspend": True}})

    def output(self, batch: Batch, handle: str, task: int) -> str:
        """Return the output of a task so far, of all its pods."""
        log_file = batch.log_file(task)
        pods = self._pods(handle).get(batch.tasks.index(task), [])
        text = "".join(self._log(pod["metadata"]["name"]) for pod in pods)
        if text:
            batch.folder.mkdir(parents=True, exist_ok=True)
            log_file.write_text(text, encoding="utf-8")
        elif log_file.exists():
            # The pods were deleted.
            text = log_file.read_text(encoding="utf-8")
        return text

    def _log(self, pod: str) -> str:
        # 400 and 404: the pod has not started, or was deleted.
        content = self._request(self._core.read_namespaced_pod_log, name=pod, ignore=lambda e: e.status in (400, 404))
        return (content or b"").decode("utf-8", "replace")

    def _read_job(self, name: str) -> dict[str, Any] | None:
        content = self._request(self._jobs.read_namespaced_job, name=name, ignore=_is_absent)
        return None if content is None else dict(json.loads(content))

    def _pods(self, job: str) -> dict[int, list[dict[str, Any]]]:
        """Return the pods of a Job by completion index, oldest first."""
        content = self._request(self._core.list_namespaced_pod, label_selector=f"batch.kubernetes.io/job-name={job}")
        pods: dict[int, list[dict[str, Any]]] = {}
        for pod in sorted(json.loads(content or b"")["items"], key=lambda p: str(p["metadata"]["creationTimestamp"])):
            index = pod["metadata"].get("annotations", {}).get(_INDEX)
            if index is not None:
                pods.setdefault(int(index), []).append(pod)
        return pods

    def _request(
        self, operation: Any, *, ignore: Callable[[Any], bool] = lambda _: False, **arguments: Any
    ) -> bytes | None:
        """Return the answer to an operation of the API; ``None`` after an error that ``ignore`` accepts.

        Raises:
            RefusedError: If the API rejects the request.
            ExecutorError: If it cannot be reached, or fails.
        """
        try:
            # As bytes: the client would parse output that looks like JSON, and return its Python representation.
            response = operation(
                namespace=self._namespace, _preload_content=False, _request_timeout=_SECONDS, **arguments
            )
            return bytes(response.data)
        except self._library.client.ApiException as error:
            if ignore(error):
                return None
            raise _error_from(error, self._namespace) from None
        except urllib3.exceptions.HTTPError as error:
            raise ExecutorError(
                f"the cluster's API cannot be reached: {' '.join(str(error).split())[-300:]}",
                hint="submitted tasks continue; repeat the command when the API is reachable again",
            ) from None

    @cached_property
    def _library(self) -> Any:
        """The package of the client, with its modules `client` and `config`."""
        try:
            with needs_extra("kubernetes", "executor `kubernetes`"):
                import kubernetes
        except MissingExtraError as error:
            raise MissingClientError("kubernetes", error.message) from None
        return kubernetes

    @cached_property
    def _client(self) -> Any:
        client, config = self._library.client, self._library.config
        o = self.options
        settings = client.Configuration()
        try:
            if o.kubeconfig or o.context:
                config.load_kube_config(o.kubeconfig or None, o.context or None, client_configuration=settings)
            else:
                config.load_config(client_configuration=settings)
        except (config.ConfigException, OSError) as error:
            raise RefusedError(
                f"no cluster is configured: {' '.join(str(error).split())}",
                hint="set a file with `--engine kubeconfig=FILE`, or write YAML files with `--render DIR`",
            ) from None
        # The caller decides whether to retry.
        settings.retries = False
        return client.ApiClient(settings)

    @cached_property
    def _jobs(self) -> Any:
        return self._library.client.BatchV1Api(self._client)

    @cached_property
    def _core(self) -> Any:
        return self._library.client.CoreV1Api(self._client)

    @cached_property
    def _namespace(self) -> str:
        if self.options.namespace:
            return self.options.namespace
        config = self._library.config
        try:
            contexts, active = config.list_kube_config_contexts(self.options.kubeconfig or None)
        except config.ConfigException:
            # Inside a cluster: the namespace of this pod.
            return tail_of(_OWN_NAMESPACE, 300).strip() or "default"
        context = next((c for c in contexts if c["name"] == self.options.context), active)
        return str(context["context"].get("namespace", "default"))


def _exists(error: Any) -> bool:
    return bool(error.status == 409 and "AlreadyExists" in str(error.body))


def _is_absent(error: Any) -> bool:
    return bool(error.status == 404 and (_content_of(error).get("details") or {}).get("kind") != "namespaces")


def _content_of(error: Any) -> dict[str, Any]:
    """Return the document that describes an error of the API; empty if the answer came from another program."""
    try:
        return dict(json.loads(error.body))
    except (TypeError, ValueError):
        return {}


def _error_from(error: Any, namespace: str) -> ExecutorError:
    cause = str(_content_of(error).get("message", error.reason))
    if error.status == 429 or error.status >= 500:
        return ExecutorError(
            f"the cluster's API failed with status {error.status}: {cause}",
            hint="submitted tasks continue; repeat the command when the API works again",
        )
    hints = {
        401: "the kubeconfig's token is wrong or has expired: sign in again",
        403: f"your account has no permission in namespace `{namespace}`: ask for rights on jobs, pods and configmaps",
        404: f"check whether namespace `{namespace}` is right, or choose one with `--engine namespace=NAME`",
        422: "change the option in the message with `--engine NAME=VALUE`",
    }
    hint = hints.get(error.status, "")
    if "quota" in cause:
        hint = "the namespace's quota is exceeded: request less (`cpus`, `memory`, `gpus`), or wait"
    return RefusedError(f"Kubernetes rejects the request: {cause}", hint=hint)


def _active_state(pod: dict[str, Any]) -> tuple[EngineState, str]:
    """Return the state of a pod that has not ended, and the reason if it waits."""
    status = pod.get("status", {})
    for container in status.get("containerStatuses", ()):
        waiting = container.get("state", {}).get("waiting", {})
        if _PERMANENT_REASONS.search(str(waiting.get("reason", ""))):
            return "queued", f"{waiting['reason']}: {waiting.get('message', '')}".strip(": ")
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return "queued", str(condition.get("message", condition.get("reason", "")))
    return ("running" if status.get("phase") == "Running" else "queued"), ""


def _failed_state(pod: dict[str, Any]) -> tuple[EngineState, str]:
    """Return the final state of a failed pod, and the reason."""
    status = pod.get("status", {})
    if status.get("reason") == "DeadlineExceeded":
        return "timed-out", "the task exceeded its time limit"
    for container in status.get("containerStatuses", ()):
        ended = container.get("state", {}).get("terminated", {})
        if ended.get("reason") == "OOMKilled":
            return "out-of-memory", "the container exceeded its memory limit"
        if ended:
            return "failed", f"exit status {ended.get('exitCode')}"
    return "failed", str(status.get("message") or status.get("reason") or "the pod failed")
