"""Runs batches on Kubernetes, through its API: a batch is an Indexed Job.

Tasks see no file of whoever submits: what they read comes in a ConfigMap, what they measure goes out in their output,
and to a service where one is named. Kubernetes keeps the output as long as the Job (``ttl_hours``), and rotates it at
10 MiB by default (the kubelet's ``containerLogMaxSize``): a task's output is kept in the batch's folder as soon as it
was read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from knowledge.domain.hardware import HardwareProfile
from pi_runners.executors.base import Batch, ExecutorError, RefusedError, State, TaskStatus, tail_of
from pi_runners.executors.manifests import KubernetesOptions, manifests

_SECONDS = 30
_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_INDEX = "batch.kubernetes.io/job-completion-index"
# Reasons of a waiting container that will not go away by themselves:
# https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/images/types.go
_STUCK = re.compile(r"ImagePull|ErrImage|InvalidImage|CreateContainer|RunContainerError")


class KubernetesExecutor:
    """A namespace of a cluster; see :mod:`pi_runners.executors.base` for the contract."""

    sees_files = False

    def __init__(self, options: KubernetesOptions | None = None, hardware: HardwareProfile | None = None) -> None:
        self.options = options or KubernetesOptions()
        self._hardware = hardware

    def check(self) -> None:
        """Check that the client is installed and a cluster configured; see :meth:`Executor.check`."""
        _ = self._client

    def submit(self, batch: Batch) -> str:
        """Create the Job, unless there is one of that name."""
        config, job = self.manifests(batch)
        with self._asking():
            self._once(self._core.create_namespaced_config_map, config)
            self._once(self._jobs.create_namespaced_job, job)
            found = self._read(batch.name)
            if found is not None:
                # The ConfigMap goes with the Job.
                owner = {"apiVersion": "batch/v1", "kind": "Job", "name": batch.name, "uid": found["metadata"]["uid"]}
                self._core.patch_namespaced_config_map(
                    batch.name, self._namespace, {"metadata": {"ownerReferences": [owner]}}, _request_timeout=_SECONDS
                )
        return batch.name

    def manifests(self, batch: Batch) -> list[dict[str, Any]]:
        """Return what is applied to submit a batch: a ConfigMap, then a Job."""
        return manifests(batch, self.options, self._hardware)

    def find(self, batch: Batch) -> str | None:
        """Return the Job's name, if there is one."""
        with self._asking():
            return None if self._read(batch.name) is None else batch.name

    def poll(self, batch: Batch, handle: str) -> tuple[TaskStatus, ...]:
        """Return the status of every task."""
        with self._asking():
            job = self._read(handle)
            pods = self._pods(handle) if job is not None else {}
        if job is None:
            gone = "the Job is gone: it was deleted, or its time to live is over"
            return tuple(TaskStatus(task=task, state="lost", reason=gone) for task in batch.tasks)
        status = job.get("status", {})
        done, failed = _indexes(status.get("completedIndexes")), _indexes(status.get("failedIndexes"))
        stopped = bool(job["spec"].get("suspend"))
        told = []
        for index, task in enumerate(batch.tasks):
            pod = pods.get(index, [{}])[-1]
            state, reason = _running(pod)
            if index in done:
                state, reason = "done", ""
            elif index in failed:
                state, reason = _ended(pod)
            elif stopped:
                state, reason = "cancelled", ""
            node = str(pod.get("spec", {}).get("nodeName", ""))
            told.append(TaskStatus(task=task, state=state, node=node, reason=reason))
        return tuple(told)

    def cancel(self, batch: Batch, handle: str) -> None:
        """Suspend the Job: what runs is ended, and the output of what has ended stays."""
        for task in batch.tasks:
            self.output(batch, handle, task)
        with self._asking():
            if self._read(handle) is not None:
                self._jobs.patch_namespaced_job(
                    handle, self._namespace, {"spec": {"suspend": True}}, _request_timeout=_SECONDS
                )

    def output(self, batch: Batch, handle: str, task: int) -> str:
        """Return what a task has written so far, in all its pods."""
        kept = batch.folder / f"task-{task}.log"
        with self._asking():
            pods = self._pods(handle).get(batch.tasks.index(task), [])
            told = "".join(self._log(pod["metadata"]["name"]) for pod in pods)
        if told:
            batch.folder.mkdir(parents=True, exist_ok=True)
            kept.write_text(told, encoding="utf-8")
        elif kept.exists():
            # Its pods are gone.
            told = kept.read_text(encoding="utf-8")
        return told

    def _log(self, pod: str) -> str:
        from kubernetes.client import ApiException

        try:
            # Bytes: the client would read text that looks like JSON as such, and print it in Python's way.
            answer = self._core.read_namespaced_pod_log(
                pod, self._namespace, _preload_content=False, _request_timeout=_SECONDS
            )
        except ApiException as error:
            if error.status in (400, 404):
                # It has not begun, or is gone.
                return ""
            raise
        return str(answer.data.decode("utf-8", "replace"))

    def _once(self, create: Any, manifest: dict[str, Any]) -> None:
        from kubernetes.client import ApiException

        try:
            create(self._namespace, manifest, _request_timeout=_SECONDS)
        except ApiException as error:
            if error.status != 409 or "AlreadyExists" not in str(error.body):
                raise

    def _read(self, name: str) -> dict[str, Any] | None:
        from kubernetes.client import ApiException

        try:
            answer = self._jobs.read_namespaced_job(
                name, self._namespace, _preload_content=False, _request_timeout=_SECONDS
            )
        except ApiException as error:
            if error.status == 404 and _kind(error) != "namespaces":
                return None
            raise
        found: dict[str, Any] = json.loads(answer.data)
        return found

    def _pods(self, job: str) -> dict[int, list[dict[str, Any]]]:
        """Return the pods of a Job by completion index, oldest first."""
        answer = self._core.list_namespaced_pod(
            self._namespace,
            label_selector=f"batch.kubernetes.io/job-name={job}",
            _preload_content=False,
            _request_timeout=_SECONDS,
        )
        found: dict[int, list[dict[str, Any]]] = {}
        for pod in sorted(json.loads(answer.data)["items"], key=lambda p: str(p["metadata"]["creationTimestamp"])):
            index = pod["metadata"].get("annotations", {}).get(_INDEX)
            if index is not None:
                found.setdefault(int(index), []).append(pod)
        return found

    @cached_property
    def _client(self) -> Any:
        try:
            from kubernetes import client, config
        except ImportError:
            raise RefusedError(
                "the Kubernetes client is not installed",
                hint="install it with `pip install 'seshat-advisor[kubernetes]'`",
            ) from None
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
                hint="name a file with `--engine kubeconfig=FILE`, or write plain YAML with `--render DIR`",
            ) from None
        # Whoever asks decides whether to ask again.
        settings.retries = False
        return client.ApiClient(settings)

    @cached_property
    def _jobs(self) -> Any:
        from kubernetes import client

        return client.BatchV1Api(self._client)

    @cached_property
    def _core(self) -> Any:
        from kubernetes import client

        return client.CoreV1Api(self._client)

    @cached_property
    def _namespace(self) -> str:
        if self.options.namespace:
            return self.options.namespace
        from kubernetes import config

        try:
            contexts, current = config.list_kube_config_contexts(self.options.kubeconfig or None)
        except config.ConfigException:
            # Inside a cluster: the pod's own.
            return tail_of(_OWN_NAMESPACE, 300).strip() or "default"
        chosen = next((c for c in contexts if c["name"] == self.options.context), current)
        return str(chosen["context"].get("namespace", "default"))

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn what the client raises into one sentence."""
        self._client  # noqa: B018 - a missing client is told before its errors are looked for
        import urllib3
        from kubernetes.client import ApiException

        try:
            yield
        except ApiException as error:
            raise _refusal(error, self._namespace) from None
        except urllib3.exceptions.HTTPError as error:
            raise ExecutorError(
                f"the cluster's API cannot be reached: {' '.join(str(error).split())[-300:]}",
                hint="what was submitted goes on; the same command follows it when the API is back",
            ) from None


def _kind(error: Any) -> str:
    try:
        return str(json.loads(error.body)["details"]["kind"])
    except (TypeError, ValueError, KeyError):
        return ""


def _refusal(error: Any, namespace: str) -> ExecutorError:
    try:
        cause = str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        cause = str(error.reason)
    if error.status == 429 or error.status >= 500:
        return ExecutorError(
            f"the cluster's API answers with {error.status}: {cause}",
            hint="what was submitted goes on; the same command follows it when the API is well again",
        )
    hints = {
        401: "the kubeconfig's token is wrong or has expired: sign in again",
        403: f"your account may not do that in namespace `{namespace}`: ask for rights on jobs, pods and configmaps",
        404: f"is namespace `{namespace}` the right one? name it with `--engine namespace=NAME`",
        422: "change the option that it names with `--engine NAME=VALUE`",
    }
    hint = hints.get(error.status, "")
    if "quota" in cause:
        hint = "the namespace's quota refuses it: ask for less (`cpus`, `memory`, `gpus`), or wait"
    return RefusedError(f"Kubernetes refuses: {cause}", hint=hint)


def _indexes(text: str | None) -> set[int]:
    """Read ``1,3-5`` as the Job's status writes it."""
    found: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        if first:
            found.update(range(int(first), int(last or first) + 1))
    return found


def _running(pod: dict[str, Any]) -> tuple[State, str]:
    """Return what a pod that has not ended does, and what it waits for."""
    status = pod.get("status", {})
    for container in status.get("containerStatuses", ()):
        waiting = container.get("state", {}).get("waiting", {})
        if _STUCK.search(str(waiting.get("reason", ""))):
            return "queued", f"{waiting['reason']}: {waiting.get('message', '')}".strip(": ")
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return "queued", str(condition.get("message", condition.get("reason", "")))
    return ("running" if status.get("phase") == "Running" else "queued"), ""


def _ended(pod: dict[str, Any]) -> tuple[State, str]:
    """Return how a pod failed, and why."""
    status = pod.get("status", {})
    if status.get("reason") == "DeadlineExceeded":
        return "timed-out", "it ran longer than it may"
    for container in status.get("containerStatuses", ()):
        ended = container.get("state", {}).get("terminated", {})
        if ended.get("reason") == "OOMKilled":
            return "out-of-memory", "its container was killed for its memory"
        if ended:
            return "failed", f"exit status {ended.get('exitCode')}"
    return "failed", str(status.get("message") or status.get("reason") or "its pod failed")
