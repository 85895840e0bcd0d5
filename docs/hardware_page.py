"""Reference page of the hardware catalogue: accelerators, shipped profiles and cloud instances with their sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from advisor.domain.words import memory_text, quoted, rate_text
from advisor.report.tables import table_lines
from docs.builds_page import attribute_meanings
from knowledge.hardware.accelerators import AcceleratorModel, accelerator_models
from knowledge.hardware.matrix_features import feature_meanings, features_by_element_type, matrix_features
from knowledge.hardware.shipped_machines import PROVIDERS, ShippedMachine, cloud_instances, shipped_machines

_VENDORS = {
    "nvidia": "NVIDIA",
    "amd": "AMD",
    "intel": "Intel",
    "apple": "Apple",
    "google": "Google",
}
_ELEMENT_TYPES = ("float32", "float16", "bfloat16", "float8")
_INTRODUCTION = """\
# Hardware catalogue

What the makers state about accelerators, the hardware profiles that ship with the program, and instances of cloud
providers. `--hardware NAME` takes the name of each profile and instance on this page, in any spelling: `RTX 4090` and
`rtx-4090` are `rtx4090`. `Standard_` of Azure's names may be left out. `advisor hardware show NAME` prints one with all
its facts and sources; `advisor hardware list` prints them with filters.

The facts are in `knowledge/hardware/catalogue` and `knowledge/hardware/machines`, each with the page it was read on. A
fact that no page states is left out. Other spellings of a name, such as `GeForce_GTX_1080_Ti` or `8x A100 80GB`, lead
to the most specific entry that they can mean; the entry of `A100 80GB` contains what the variants with 80 GB share.
"""
_RATES = """\
Rates are peak rates without sparsity, on the fastest units that support the element type; `float16` and `bfloat16`
have 32-bit accumulators. Memory is the memory of one accelerator. The host is the processor of the profile, by
[archspec](https://archspec.readthedocs.io) name: of a system with this accelerator if a page names one, else any
processor of the level `x86_64_v3` (AVX2). An entry without a host is no profile, because no framework that the program
advises on runs on it.
"""
_MATRIX = """\
These features of processors decide whether a reduced precision is fast or slow. `advisor hardware show` prints the
features of a machine, and the fastest for each element type (`matrix` in JSON). For this machine, `/proc/cpuinfo` lists
them. For a profile, archspec lists them by its microarchitecture; for `sapphirerapids`, the program adds
`avx512_fp16` and `avx_vnni`, which [GCC's list](https://gcc.gnu.org/onlinedocs/gcc-13.2.0/gcc/x86-Options.html) has and
archspec's has not. A profile with a generic level, such as `x86_64_v3`, says nothing about them.

The name of a microarchitecture does not contain all features. archspec gives a processor the name of the newest
microarchitecture if it has all of its features. On a virtual machine that hides `waitpkg` (user wait instructions), a
Sapphire Rapids or Granite Rapids is therefore `icelake`. The name stays as archspec gives it, because observations are
stored under it; the lines `beyond the name` and `nearest name` say what it leaves out. The estimator uses [the
features](../explanation/estimator.md#reduced-precision-on-processors).

On Linux, a program may use AMX only if the kernel gives it the state of the tiles
([documentation of the kernel](https://docs.kernel.org/arch/x86/xstate.html)). `/proc/cpuinfo` lists AMX also where the
kernel refuses, in a container for example. So the program asks, in a process of its own
(`arch_prctl(ARCH_REQ_XCOMP_PERM)`). If the answer is no, the AMX features do not count as features of the machine, and
`advisor hardware show` prints them with the reason in the line `not usable` (`unknown` in JSON).
"""


def hardware_page() -> str:
    """Return the page of the hardware catalogue."""
    lines = [_INTRODUCTION, *_fields(), "", "## Accelerators", "", _RATES]
    models = [model for model in accelerator_models() if not model.variants]
    others = [model for model in models if model.vendor not in _VENDORS]
    for vendor, title in _VENDORS.items():
        lines += [f"### {title}", "", *_models_table(model for model in models if model.vendor == vendor), ""]
    lines += ["### Other vendors", "", *_models_table(others), ""]
    lines += ["## Short names", "", *_short_names(), "", "## Processors", "", *_processors(), ""]
    lines += ["### Features for matrices", "", _MATRIX, *_matrix_features(), ""]
    for provider, title in PROVIDERS.items():
        instances = [machine for machine in cloud_instances().values() if machine.provider == provider]
        lines += [f"## {title}", "", *_instances_table(instances), ""]
    return "\n".join(lines)


def _fields() -> Iterator[str]:
    """Return a table of the facts about an accelerator, as `advisor hardware show --format json` names them."""
    meanings = attribute_meanings(AcceleratorModel).items()
    return table_lines(("field", "meaning"), ((f"`{name}`", text) for name, text in meanings if name != "variants"))


def _models_table(models: Iterable[AcceleratorModel]) -> Iterator[str]:
    heads = ("name", "model", "kind", "architecture", "target", "memory", "bandwidth", *_ELEMENT_TYPES)
    return table_lines((*heads, "power", "year", "host", "sources"), map(_model_cells, models))


def _model_cells(model: AcceleratorModel) -> Sequence[str]:
    machine = shipped_machines().get(model.name)
    return (
        f"`{model.name}`",
        model.model,
        model.kind,
        model.architecture,
        model.compute_capability or model.gfx or "",
        memory_text(model.memory_bytes),
        rate_text(model.memory_bytes_per_second, "B/s"),
        *(rate_text(model.flops.get(name), "FLOP/s") for name in _ELEMENT_TYPES),
        f"{model.watts:g} W" if model.watts else "",
        str(model.year or ""),
        machine.profile.cpu.microarchitecture if machine is not None else "",
        _links(model.sources),
    )


def _short_names() -> Iterator[str]:
    """Return a table of the profiles whose name does not say which variant they have."""
    models = {name: machine.model.name for name, machine in shipped_machines().items() if machine.model is not None}
    rows = ((f"`{name}`", f"`{model}`") for name, model in models.items() if model != name)
    return table_lines(("profile", "accelerator"), rows)


def _processors() -> Iterator[str]:
    rows = []
    for name, machine in shipped_machines().items():
        if machine.model is None:
            cpu = machine.profile.cpu
            features = " ".join(f"`{feature}`" for feature in matrix_features(cpu) or ())
            rows.append((f"`{name}`", cpu.model, cpu.microarchitecture, features, _links(machine.sources)))
    heads = ("profile", "processor", "microarchitecture", "features for matrices", "sources")
    return table_lines(heads, rows)


def _matrix_features() -> Iterator[str]:
    """Yield a table of the features that decide about matrix arithmetic, and one of the fastest by element type."""
    meanings = ((f"`{name}`", e["meaning"], f"[1]({e['source']})") for name, e in feature_meanings().items())
    fastest = ((name, quoted(features)) for name, features in features_by_element_type().items())
    yield from table_lines(("feature", "meaning", "source"), meanings)
    yield ""
    yield from table_lines(("element type", "features, the fastest first"), fastest)


def _instances_table(machines: Iterable[ShippedMachine]) -> Iterator[str]:
    """Return a table with one row for each group of instances with the same processor, accelerator and sources."""
    rows = []
    for _, same in groupby(machines, key=lambda m: (m.model, m.profile.cpu.model, m.sources)):
        group = list(same)
        cpu, model = group[0].profile.cpu, group[0].model
        first, *others = group[0].sources
        own = [first, *(source for source in others if model is None or source not in model.sources)]
        name, instances = f"`{model.name}`" if model is not None else "", "<br>".join(map(_instance, group))
        rows.append((name, cpu.model, cpu.microarchitecture, instances, _links(own)))
    heads = ("accelerator", "processor", "microarchitecture", "instances (threads, memory)", "sources")
    return table_lines(heads, rows)


def _instance(machine: ShippedMachine) -> str:
    profile = machine.profile
    counts = [f"{accelerators.count} x" for accelerators in profile.accelerators]
    amounts = [f"{profile.cpu.threads} threads", memory_text(profile.memory_bytes)]
    return f"`{machine.name}` ({', '.join(part for part in (*counts, *amounts) if part)})"


def _links(sources: Iterable[str]) -> str:
    return " ".join(f"[{number}]({source})" for number, source in enumerate(sources, start=1))
