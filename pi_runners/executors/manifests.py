"""Kubernetes manifests of a batch: an Indexed Job and the ConfigMap with what its tasks read.

Sources: the Job, Pod, security context and affinity references of https://kubernetes.io/docs/reference/kubernetes-api/;
backoffLimitPerIndex is beta since 1.29 and stable since 1.33
(https://kubernetes.io/blog/2025/05/13/kubernetes-v1-33-jobs-backoff-limit-per-index-goes-ga/); node labels of GPU
feature discovery (https://github.com/NVIDIA/k8s-device-plugin/blob/main/docs/gpu-feature-discovery/README.md).
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from pi_runners.executors.base import Batch, RefusedError, shell_command

INPUTS = "/campaign"
"""Where tasks find the batch's inputs."""
SCRATCH = "/scratch"
"""The one place where tasks may write."""
_MOST_BYTES = 1_000_000
_WRONG_INPUT = 2
"""Exit status of what will fail again in the same way; see the exit codes of the command line."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x"}
_USER = 65532


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions:
    """What a batch asks of Kubernetes.

    Attributes:
        image: Image that holds this program (see the Containerfile), and CUDA and cuDNN where the stack takes them from
            the system.
        namespace: Namespace; the context's own where none is named.
        context: Context of the kubeconfig; its current one where none is named.
        kubeconfig: File; the usual ones, or the pod's own account, where none is named.
        gpus: ``nvidia.com/gpu`` of each task; one where the campaign computes on GPUs and none is named.
        cpus: Processors of each task, requested and limited alike: whole ones may be pinned by the kubelet.
        memory: Memory of each task, such as ``16Gi``, requested and limited alike.
        disk: Room for environments, such as ``20Gi``.
        at_most: So many tasks at a time; all by default.
        minutes: Longest time of a task.
        retries: So often is a failed task run again by Kubernetes itself.
        ttl_hours: How long an ended Job and its output are kept.
        exclusive: Whether no two tasks of this program share a node.
        node_selector: Labels that a node must have, ``name=value`` with commas.
        tolerations: Taints that are tolerated, by key, with commas; ``nvidia.com/gpu`` always where GPUs are asked.
        service_account: Service account of the pods, whose token they do not get.
        pull_secret: Secret with which the image is pulled.
        pull_policy: ``Always``, ``IfNotPresent`` or ``Never``.
        priority_class: Priority class.
        runtime_class: Runtime class, such as ``nvidia``.
        uv_cache_claim: Persistent volume claim with uv's cache, shared by the nodes.
        push: Address of a knowledge base's service, to which tasks also push what they measure.
        token_secret: Secret whose key ``token`` holds the token for it.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    image: str = ""
    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""
    gpus: int = 0
    cpus: str = "2"
    memory: str = "8Gi"
    disk: str = "20Gi"
    at_most: int = 0
    minutes: int = 0
    retries: int = 2
    ttl_hours: int = 24
    exclusive: bool = True
    node_selector: str = ""
    tolerations: str = ""
    service_account: str = ""
    pull_secret: str = ""
    pull_policy: str = "IfNotPresent"
    priority_class: str = ""
    runtime_class: str = ""
    uv_cache_claim: str = ""
    push: str = ""
    token_secret: str = ""


def manifests(batch: Batch, options: KubernetesOptions, hardware: HardwareProfile | None) -> list[dict[str, Any]]:
    """Return the manifests of a batch, in the order in which they are applied.

    Args:
        batch: The batch.
        options: What it asks for.
        hardware: What its tasks were planned for; none lets them run on any node.

    Raises:
        InputError: If an option is not what Kubernetes takes.
        RefusedError: If what its tasks read is too large for a ConfigMap, or its command is not UTF-8.
    """
    labels = {
        "app.kubernetes.io/name": "seshat",
        "app.kubernetes.io/component": "runner",
        "app.kubernetes.io/instance": batch.name,
    }
    metadata: dict[str, Any] = {"name": batch.name, "labels": labels}
    if options.namespace:
        metadata["namespace"] = options.namespace
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": _inputs(batch.inputs)},
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": _job(batch, options, labels, hardware),
        },
    ]


def _inputs(files: tuple[Path, ...]) -> dict[str, str]:
    found = {file.name: base64.b64encode(file.read_bytes()).decode() for file in files}
    size = sum(map(len, found.values()))
    if size > _MOST_BYTES:
        raise RefusedError(
            f"the campaign's plan takes {size / 1e6:.1f} MB, a ConfigMap 1 MB",
            hint="split the matrix: fewer stacks or indicators in each",
        )
    return found


def _job(
    batch: Batch, options: KubernetesOptions, labels: dict[str, str], hardware: HardwareProfile | None
) -> dict[str, Any]:
    return {
        "completionMode": "Indexed",
        "completions": len(batch.tasks),
        "parallelism": min(options.at_most or len(batch.tasks), len(batch.tasks)),
        "backoffLimitPerIndex": options.retries,
        "maxFailedIndexes": len(batch.tasks),
        "podReplacementPolicy": "Failed",
        "ttlSecondsAfterFinished": options.ttl_hours * 3600,
        "podFailurePolicy": {
            "rules": [
                # A node that was drained, preempted or lost is no failure of the task.
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [_WRONG_INPUT]}},
            ]
        },
        "template": {"metadata": {"labels": labels}, "spec": _pod(batch, options, labels, hardware)},
    }


def _pod(
    batch: Batch, options: KubernetesOptions, labels: dict[str, str], hardware: HardwareProfile | None
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": _affinity(options, labels, hardware),
        "containers": [_container(batch, options)],
        "volumes": [
            {"name": "campaign", "configMap": {"name": batch.name}},
            {"name": "scratch", "emptyDir": {"sizeLimit": options.disk}},
            # Processes of one framework exchange tensors there; the default of 64 MiB is too small.
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
    if options.uv_cache_claim:
        spec["volumes"].append({"name": "uv-cache", "persistentVolumeClaim": {"claimName": options.uv_cache_claim}})
    keys = [key for key in options.tolerations.split(",") if key] + (["nvidia.com/gpu"] if options.gpus else [])
    optional = {
        "activeDeadlineSeconds": options.minutes * 60 or (batch.seconds and int(batch.seconds)),
        "nodeSelector": _labels(options.node_selector),
        "tolerations": [{"key": key, "operator": "Exists"} for key in dict.fromkeys(keys)],
        "serviceAccountName": options.service_account,
        "imagePullSecrets": [{"name": options.pull_secret}] if options.pull_secret else [],
        "priorityClassName": options.priority_class,
        "runtimeClassName": options.runtime_class,
    }
    return spec | {name: value for name, value in optional.items() if value}


def _labels(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    for name, sign, value in pairs:
        if not name or not sign:
            raise InputError(
                f"option `node-selector` of executor `kubernetes`: `{name}{sign}{value}` is not a label",
                hint="write it as `NAME=VALUE`, several with commas",
            )
    return {name: value for name, _, value in pairs}


def _verbatim(text: str) -> str:
    """Return a word of a container's command such that Kubernetes passes it on as it is.

    It replaces ``$(NAME)`` by a variable of the container, and ``$$`` by ``$``:
    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#entrypoint.

    Raises:
        RefusedError: If it is not UTF-8, which no manifest can hold.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RefusedError(
            f"the command `{ascii(text)[1:-1]}` is not UTF-8, and Kubernetes takes nothing else",
            hint="name files and options in UTF-8",
        ) from None
    return text.replace("$", "$$")


def _container(batch: Batch, options: KubernetesOptions) -> dict[str, Any]:
    memory = f"{int(batch.memory_bytes)}" if batch.memory_bytes is not None else options.memory
    resources = {
        "cpu": options.cpus,
        "memory": memory,
        **({"nvidia.com/gpu": str(options.gpus)} if options.gpus else {}),
    }
    # The n-th task is the one of completion index n.
    script = (
        "i=0; for task in $TASKS; do [ $i -eq $JOB_COMPLETION_INDEX ] && break; i=$((i + 1)); done; "
        f"exec {shell_command(batch, '$task')}"
    )
    environment: list[dict[str, Any]] = [
        {"name": "TASKS", "value": " ".join(map(str, batch.tasks))},
        {"name": "HOME", "value": SCRATCH},
        {"name": "TMPDIR", "value": SCRATCH},
        {"name": "XDG_CACHE_HOME", "value": f"{SCRATCH}/cache"},
        {"name": "UV_CACHE_DIR", "value": "/uv-cache" if options.uv_cache_claim else f"{SCRATCH}/uv-cache"},
        {"name": "SESHAT_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    if options.token_secret:
        reference = {"name": options.token_secret, "key": "token"}
        environment.append({"name": "ADVISOR_TOKEN", "valueFrom": {"secretKeyRef": reference}})
    mounts = [
        {"name": "campaign", "mountPath": INPUTS, "readOnly": True},
        {"name": "scratch", "mountPath": SCRATCH},
        {"name": "shared-memory", "mountPath": "/dev/shm"},
    ]
    if options.uv_cache_claim:
        mounts.append({"name": "uv-cache", "mountPath": "/uv-cache"})
    return {
        "name": "runner",
        "image": options.image,
        "imagePullPolicy": options.pull_policy,
        "command": ["/bin/sh", "-c", _verbatim(script)],
        "workingDir": SCRATCH,
        "env": environment,
        # Requests equal limits: the pod is of the class Guaranteed, and whole processors are its own under the static
        # policy of the kubelet.
        "resources": {"requests": resources, "limits": resources},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _affinity(options: KubernetesOptions, labels: dict[str, str], hardware: HardwareProfile | None) -> dict[str, Any]:
    """Return where a pod may run: nodes as planned for, and none that measures already."""
    found: dict[str, Any] = {}
    if hardware is not None:
        terms = [
            {
                "key": "kubernetes.io/arch",
                "operator": "In",
                "values": [_ARCHITECTURES.get(hardware.cpu.architecture, hardware.cpu.architecture)],
            }
        ]
        if hardware.gpu is not None and hardware.gpu.capability is not None:
            major, minor = hardware.gpu.capability
            terms += [
                {"key": "nvidia.com/gpu.compute.major", "operator": "In", "values": [str(major)]},
                {"key": "nvidia.com/gpu.compute.minor", "operator": "In", "values": [str(minor)]},
            ]
        if hardware.driver is not None and hardware.driver.newest_cuda:
            least = int(hardware.driver.newest_cuda.partition(".")[0])
            terms.append({"key": "nvidia.com/cuda.runtime.major", "operator": "Gt", "values": [str(least - 1)]})
        found["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": terms}]}
        }
    if options.exclusive:
        same = {name: labels[name] for name in ("app.kubernetes.io/name", "app.kubernetes.io/component")}
        found["podAntiAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": same}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    return found
