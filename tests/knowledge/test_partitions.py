"""Spellings of parts of a GPU, and names of whole ones that are similar."""

from __future__ import annotations

import pytest

from knowledge.hardware.accelerators import accelerator_models, find_accelerator
from knowledge.hardware.partitions import part_of, share_of, states_part


@pytest.mark.parametrize(
    ("spelled", "model", "partition"),
    [
        ("A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "mig"),
        ("A100-SXM4-40GB_MIG_1g.5gb", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "mig"),
        ("A100-SXM4-40GB_1g.5gb", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "mig"),
        ("A100 MIG 1c.3g.20gb", "NVIDIA A100 MIG 1c.3g.20gb", "mig"),
        ("A100 80GB MIG 3g-40gb", "NVIDIA A100 80GB MIG 3g.40gb", "mig"),
        ("A100_MIG", "NVIDIA A100", "mig"),
        ("GRID_T4", "Tesla T4", "vgpu"),
        ("GRID T4-16Q", "Tesla T4", "vgpu"),
        ("A100 vGPU", "NVIDIA A100", "vgpu"),
        ("A100_vGPU", "NVIDIA A100", "vgpu"),
        ("A10-24A", "NVIDIA A10", "vgpu"),
        ("A10_24A", "NVIDIA A10", "vgpu"),
        ("8x A10-24A", "NVIDIA A10", "vgpu"),
        ("T4-8B", "Tesla T4", "vgpu"),
        ("A100-40C", "NVIDIA A100", "vgpu"),
        ("A100-4-20CME", "NVIDIA A100", "vgpu"),
    ],
)
def test_a_part_of_a_gpu_is_read_in_every_spelling(spelled: str, model: str, partition: str) -> None:
    entry = find_accelerator(spelled.replace("_", " "))
    assert entry is not None
    part = part_of(entry.accelerator(), spelled)

    assert (part.model, part.partition) == (model, partition)
    assert states_part(spelled)


@pytest.mark.parametrize(
    "spelled",
    [
        "A100-SXM4-40GB", "A100-SXM4-40GB_x_8", "H100-NVL-94GB", "RTX A6000", "A10G", "V100-SXM2-32GB", "MI250X",
        "GH200-96GB", "Ascend-910B", "A100 (MIG disabled)", "Jetson-AGX-Orin-64GB", "TPU-v4-8", "A100-80G",
        "H100 (MIG: off)", "H100 MIG mode=off", "H100 no MIG", "H100 without MIG",
    ],
)  # fmt: skip
def test_a_name_with_memory_or_a_letter_is_a_whole_gpu(spelled: str) -> None:
    assert not states_part(spelled)


def test_no_name_of_the_catalogue_states_a_part() -> None:
    spellings = {spelling for entry in accelerator_models() for spelling in (entry.name, entry.model)}

    assert [spelling for spelling in sorted(spellings) if states_part(spelling)] == []


@pytest.mark.parametrize(
    ("family", "spelled", "share"),
    [
        ("a100", "A100 MIG 1g.5gb", 1 / 7),
        ("a100", "A100_MIG_3g.20gb", 3 / 7),
        ("a100", "A100 MIG 1c.3g.20gb", 1 / 7),
        ("a100", "A100 (7x1g.5gb MIG)", 1.0),
        ("a100", "A100-4-20CME", 4 / 7),
        ("a30", "A30 MIG 1g.6gb", 1 / 4),
        # Virtual GPUs that share the units in time may use all of them.
        ("a100", "A100-40C", None),
        ("a100", "A100 MIG", None),
        ("t4", "T4 1g.5gb", None),
    ],
)
def test_the_share_of_a_slice_is_its_part_of_the_largest_number_of_slices(
    family: str, spelled: str, share: float | None
) -> None:
    assert share_of(family, spelled) == (None if share is None else pytest.approx(share))
