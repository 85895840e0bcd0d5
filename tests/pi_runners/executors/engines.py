"""The executors, ready to run a batch here."""

from __future__ import annotations

import time
from collections.abc import Callable

from pi_runners.executors.base import Batch, Executor, TaskStatus
from pi_runners.executors.kubernetes import KubernetesExecutor
from pi_runners.executors.manifests import KubernetesOptions
from tests.kubernetes_double.cluster import KubernetesDouble


def on_kubernetes(cluster: KubernetesDouble, *, memory: str = "8Gi") -> KubernetesExecutor:
    options = KubernetesOptions(image="here", kubeconfig=str(cluster.kubeconfig()), retries=0, memory=memory)
    return KubernetesExecutor(options)


def wait(
    executor: Executor, batch: Batch, handle: str, until: Callable[[TaskStatus], bool], seconds: float = 90
) -> tuple[TaskStatus, ...]:
    deadline = time.monotonic() + seconds
    statuses = executor.poll(batch, handle)
    while not all(map(until, statuses)):
        assert time.monotonic() < deadline, statuses
        time.sleep(0.1)
        statuses = executor.poll(batch, handle)
    return statuses


def wait_until_final(executor: Executor, batch: Batch, handle: str, seconds: float = 90) -> dict[int, TaskStatus]:
    return {status.task: status for status in wait(executor, batch, handle, lambda s: s.final, seconds)}
