"""Kubernetes manifests: valid for all supported versions, with the least privileges that a measurement needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from knowledge.domain.hardware import Accelerator, Driver
from pi_runners.executors.base import Batch, RefusedError
from pi_runners.executors.manifests import KubernetesOptions, manifests
from tests.knowledge.samples import MACHINE
from tests.kubernetes_double.schema import violation

VERSIONS = ("1.29", "1.31", "1.33", "1.37")
ALL = KubernetesOptions(
    image="registry.example/runner:1",
    namespace="measuring",
    gpus=2,
    cpus="8",
    memory="64Gi",
    at_most=3,
    minutes=90,
    node_selector="zone=a,pool=gpu",
    tolerations="dedicated",
    service_account="runner",
    pull_secret="registry",
    priority_class="low",
    runtime_class="nvidia",
    uv_cache_claim="uv",
    push="https://knowledge.example",
    token_secret="push-token",
)
H200 = replace(
    MACHINE,
    accelerators=(Accelerator(vendor="nvidia", model="NVIDIA H200", compute_capability="9.0"),),
    driver=Driver(version="570.1", newest_cuda="12.8"),
)


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    (tmp_path / "campaign.json.gz").write_bytes(b"plan")
    return Batch(
        name="campaign-1",
        command=("advisor", "pi", "work", "/scratch/campaign", "{task}"),
        tasks=(0, 3, 4, 8),
        folder=tmp_path / "batch",
        home=tmp_path,
        inputs=(tmp_path / "campaign.json.gz",),
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("options", [KubernetesOptions(image="x"), ALL], ids=["minimal", "all"])
def test_manifests_match_the_published_schemas(batch: Batch, version: str, options: KubernetesOptions) -> None:
    for hardware in (None, MACHINE, H200):
        for manifest in manifests(batch, options, hardware):
            assert violation(manifest, version) is None


def test_an_invalid_manifest_does_not_match_the_schema(batch: Batch) -> None:
    job = manifests(batch, ALL, H200)[1]
    job["spec"]["completion"] = 4

    assert "completion" in (violation(job, VERSIONS[0]) or "")


def _pod(batch: Batch, options: KubernetesOptions = ALL) -> dict[str, Any]:
    pod: dict[str, Any] = manifests(batch, options, H200)[1]["spec"]["template"]["spec"]
    return pod


def test_pods_have_the_least_privileges_that_measuring_needs(batch: Batch) -> None:
    pod = _pod(batch)
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {m["mountPath"]: m.get("readOnly", False) for m in container["volumeMounts"]} == {
        "/campaign": True,
        "/scratch": False,
        "/dev/shm": False,
        "/uv-cache": False,
    }


def test_a_pod_has_its_node_and_resources_to_itself(batch: Batch) -> None:
    pod = _pod(batch)
    (container,) = pod["containers"]
    expected = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "2"}

    assert container["resources"] == {"requests": expected, "limits": expected}
    assert pod["affinity"]["podAntiAffinity"]
    assert "podAntiAffinity" not in _pod(batch, replace(ALL, exclusive=False))["affinity"]
    assert {t["key"] for t in pod["tolerations"]} == {"dedicated", "nvidia.com/gpu"}


def test_nodes_are_selected_by_the_hardware_profile(batch: Batch) -> None:
    required = _pod(batch)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]

    assert {(e["key"], e["operator"], *e["values"]) for e in term["matchExpressions"]} == {
        ("kubernetes.io/arch", "In", "amd64"),
        ("nvidia.com/gpu.compute.major", "In", "9"),
        ("nvidia.com/gpu.compute.minor", "In", "0"),
        ("nvidia.com/cuda.runtime.major", "Gt", "11"),
    }


def test_disruptions_are_ignored_failures_fail_the_index_and_finished_jobs_are_deleted(batch: Batch) -> None:
    spec = manifests(batch, ALL, None)[1]["spec"]
    rules = spec["podFailurePolicy"]["rules"]

    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 3)
    assert spec["backoffLimitPerIndex"] == 2
    assert spec["ttlSecondsAfterFinished"] == 86400
    assert [rule["action"] for rule in rules] == ["Ignore", "FailIndex"]
    assert rules[0]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert spec["template"]["spec"]["activeDeadlineSeconds"] == 5400


def test_the_token_is_read_from_a_secret(batch: Batch) -> None:
    (container,) = _pod(batch)["containers"]
    (token,) = [e for e in container["env"] if e["name"] == "ADVISOR_TOKEN"]

    assert token["valueFrom"] == {"secretKeyRef": {"name": "push-token", "key": "token"}}


def test_a_plan_that_is_too_large_is_refused(batch: Batch, tmp_path: Path) -> None:
    (tmp_path / "campaign.json.gz").write_bytes(b"x" * 1_000_000)

    with pytest.raises(RefusedError, match="a ConfigMap at most 1 MB"):
        manifests(batch, ALL, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests_of_the_guide_match_the_published_schemas(version: str) -> None:
    folder = Path(__file__).parents[3] / "docs" / "how-to" / "kubernetes"
    kinds = []
    for path in sorted(folder.rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document["apiVersion"].startswith("kustomize."):
                for name in document.get("resources", ()):
                    assert (path.parent / name).exists(), name
                continue
            kinds.append(document["kind"])
            assert violation(document, version) is None

    assert {"CronJob", "ServiceAccount", "Role", "RoleBinding", "Namespace"} <= set(kinds)
