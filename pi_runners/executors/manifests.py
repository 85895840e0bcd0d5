"""Kubernetes manifests of a batch: an Indexed Job, and a ConfigMap with the inputs of its tasks.

Sources: the Job, Pod, security context and affinity references of https://kubernetes.io/docs/reference/kubernetes-api/;
backoffLimitPerIndex is beta since 1.29 and stable since 1.33
(https://kubernetes.io/blog/2025/05/13/kubernetes-v1-33-jobs-backoff-limit-per-index-goes-ga/); node labels of GPU
feature discovery (https://github.com/NVIDIA/k8s-device-plugin/blob/main/docs/gpu-feature-discovery/README.md).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knowledge.domain.errors import InputError
from knowledge.domain.hardware import HardwareProfile
from knowledge.domain.shared_files import read_bytes, write_atomically
from pi_runners.executors.base import Batch, RefusedError, shell_command

INPUTS = "/campaign"
"""Directory of the batch's inputs in the container."""
SCRATCH = "/scratch"
"""The only writable directory in the container."""
_MAX_INPUT_BYTES = 1_000_000
_TEMPLATE = Path(__file__).with_name("job.yaml")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions:
    """Options of a batch on Kubernetes.

    Attributes:
        image: Container image with this program (see the Containerfile), and with CUDA and cuDNN if the stack uses the
            system's.
        namespace: Namespace; by default the context's.
        context: Context of the kubeconfig; by default the current one.
        kubeconfig: Path of the kubeconfig; by default the usual files, or the service account of the pod.
        gpus: Number of GPUs (``nvidia.com/gpu``) of each task; by default one if the campaign computes on GPUs.
        cpus: Processors of each task, as request and limit; the kubelet can pin whole processors.
        memory: Memory of each task, such as ``16Gi``, as request and limit.
        disk: Disk space for environments, such as ``20Gi``.
        at_most: Maximum number of concurrent tasks; by default no limit.
        minutes: Time limit of a task in minutes.
        retries: Number of times that Kubernetes restarts a failed task.
        ttl_hours: Hours after which an ended Job and its output are deleted.
        exclusive: Whether to run at most one task of this program on each node.
        node_selector: Required labels of the node, ``NAME=VALUE`` separated by commas.
        tolerations: Keys of tolerated taints, separated by commas; ``nvidia.com/gpu`` is added if GPUs are requested.
        service_account: Service account of the pods; its token is not mounted.
        pull_secret: Secret for pulling the image.
        pull_policy: ``Always``, ``IfNotPresent`` or ``Never``.
        priority_class: Priority class.
        runtime_class: Runtime class, such as ``nvidia``.
        uv_cache_claim: Persistent volume claim for uv's cache, shared by the nodes.
        push: URL of a knowledge base service; tasks also push their observations there.
        token_secret: Secret with the token for that service, under the key ``token``.
    """

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
    """Return the manifests of a batch for planned hardware, or any node, in the order in which they are applied.

    Raises:
        InputError: If the value of an option is not valid.
        RefusedError: If the inputs are too large for a ConfigMap, or the command is not valid UTF-8.
    """
    import yaml

    labels = {
        "app.kubernetes.io/name": "seshat",
        "app.kubernetes.io/component": "runner",
        "app.kubernetes.io/instance": batch.name,
    }
    metadata: dict[str, Any] = {"name": batch.name, "labels": labels}
    if options.namespace:
        metadata["namespace"] = options.namespace
    job: dict[str, Any] = yaml.safe_load(_TEMPLATE.read_text(encoding="utf-8"))
    job["metadata"] = metadata
    job["spec"] |= {
        "completions": len(batch.tasks),
        "parallelism": min(options.at_most or len(batch.tasks), len(batch.tasks)),
        "backoffLimitPerIndex": options.retries,
        "maxFailedIndexes": len(batch.tasks),
        "ttlSecondsAfterFinished": options.ttl_hours * 3600,
    }
    template = job["spec"]["template"]
    template["metadata"]["labels"] = labels
    template["spec"]["affinity"] = _affinity(options, labels, hardware)
    _complete_pod(template["spec"], batch, options)
    inputs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": _inputs(batch.inputs)}
    return [inputs, job]


def _inputs(files: tuple[Path, ...]) -> dict[str, str]:
    contents = {file.name: base64.b64encode(read_bytes(file)).decode() for file in files}
    size = sum(map(len, contents.values()))
    if size > _MAX_INPUT_BYTES:
        raise RefusedError(
            f"the campaign's plan has {size / 1e6:.1f} MB, a ConfigMap at most 1 MB",
            hint="split the matrix into several with fewer stacks or indicators",
        )
    return contents


def _complete_pod(spec: dict[str, Any], batch: Batch, options: KubernetesOptions) -> None:
    """Complete the specification of a pod by what depends on the batch and its options."""
    (container,) = spec["containers"]
    inputs, scratch, _ = spec["volumes"]
    inputs["configMap"]["name"] = batch.name
    scratch["emptyDir"]["sizeLimit"] = options.disk
    if options.uv_cache_claim:
        spec["volumes"].append({"name": "uv-cache", "persistentVolumeClaim": {"claimName": options.uv_cache_claim}})
        container["volumeMounts"].append({"name": "uv-cache", "mountPath": "/uv-cache"})
    resources = {
        "cpu": options.cpus,
        "memory": options.memory,
        **({"nvidia.com/gpu": str(options.gpus)} if options.gpus else {}),
    }
    # Completion index n runs the n-th task.
    script = (
        "i=0; for task in $TASKS; do [ $i -eq $JOB_COMPLETION_INDEX ] && break; i=$((i + 1)); done; "
        f"exec {shell_command(batch, '$task')}"
    )
    container |= {
        "image": options.image,
        "imagePullPolicy": options.pull_policy,
        "command": ["/bin/sh", "-c", _escaped(script)],
        "env": _environment(batch, options),
        "resources": {"requests": resources, "limits": resources},
    }
    keys = [key for key in options.tolerations.split(",") if key] + (["nvidia.com/gpu"] if options.gpus else [])
    optional = {
        "activeDeadlineSeconds": options.minutes * 60,
        "nodeSelector": _labels(options.node_selector),
        "tolerations": [{"key": key, "operator": "Exists"} for key in dict.fromkeys(keys)],
        "serviceAccountName": options.service_account,
        "imagePullSecrets": [{"name": options.pull_secret}] if options.pull_secret else [],
        "priorityClassName": options.priority_class,
        "runtimeClassName": options.runtime_class,
    }
    spec |= {name: value for name, value in optional.items() if value}


def _environment(batch: Batch, options: KubernetesOptions) -> list[dict[str, Any]]:
    values = {
        "TASKS": " ".join(map(str, batch.tasks)),
        "HOME": SCRATCH,
        "TMPDIR": SCRATCH,
        "XDG_CACHE_HOME": f"{SCRATCH}/cache",
        "UV_CACHE_DIR": "/uv-cache" if options.uv_cache_claim else f"{SCRATCH}/uv-cache",
    }
    sources: dict[str, Any] = {"SESHAT_NODE": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    if options.token_secret:
        sources["ADVISOR_TOKEN"] = {"secretKeyRef": {"name": options.token_secret, "key": "token"}}
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        *({"name": name, "valueFrom": source} for name, source in sources.items()),
    ]


def _labels(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    for name, sign, value in pairs:
        if not name or not sign:
            raise InputError(
                f"option `node-selector` of executor `kubernetes`: `{name}{sign}{value}` is not a label",
                hint="write labels as `NAME=VALUE`, separated by commas",
            )
    return {name: value for name, _, value in pairs}


def _escaped(text: str) -> str:
    """Escape a word of a container's command.

    Kubernetes replaces ``$(NAME)`` by a variable of the container, and ``$$`` by ``$``:
    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#entrypoint.

    Raises:
        RefusedError: If the word is not valid UTF-8, which a manifest cannot contain.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RefusedError(
            f"the command `{ascii(text)[1:-1]}` is not valid UTF-8, which Kubernetes requires",
            hint="use UTF-8 in the names of files and in options",
        ) from None
    return text.replace("$", "$$")


def _affinity(options: KubernetesOptions, labels: dict[str, str], hardware: HardwareProfile | None) -> dict[str, Any]:
    """Return the affinity of a pod: nodes with the planned hardware, and no node that already measures."""
    affinity: dict[str, Any] = {}
    if hardware is not None:
        architecture = hardware.cpu.architecture
        terms = [("kubernetes.io/arch", "In", _ARCHITECTURES.get(architecture, architecture))]
        if hardware.gpu is not None and hardware.gpu.capability is not None:
            major, minor = hardware.gpu.capability
            terms.append(("nvidia.com/gpu.compute.major", "In", str(major)))
            terms.append(("nvidia.com/gpu.compute.minor", "In", str(minor)))
        if hardware.driver is not None and hardware.driver.newest_cuda:
            major_version = int(hardware.driver.newest_cuda.partition(".")[0])
            terms.append(("nvidia.com/cuda.runtime.major", "Gt", str(major_version - 1)))
        expressions = [{"key": key, "operator": operator, "values": [value]} for key, operator, value in terms]
        affinity["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        }
    if options.exclusive:
        runner_labels = {name: labels[name] for name in ("app.kubernetes.io/name", "app.kubernetes.io/component")}
        affinity["podAntiAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": runner_labels}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    return affinity


def write_manifests(folder: Path, manifests: Iterable[Mapping[str, Any]]) -> None:
    """Write each manifest to a file of a new directory that is named after its kind, and a kustomization.

    Raises:
        InputError: If the directory cannot be written.
    """
    import yaml

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"`{folder}` cannot be written: {error.strerror}") from None
    names = []
    for manifest in manifests:
        names.append(f"{manifest['kind'].lower()}.yaml")
        # Through JSON, so that YAML repeats equal values instead of writing references.
        plain = json.loads(json.dumps(manifest))
        write_atomically(folder / names[-1], yaml.safe_dump(plain, sort_keys=False, width=10_000))
    kustomization = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": names}
    write_atomically(folder / "kustomization.yaml", yaml.safe_dump(kustomization, sort_keys=False))
