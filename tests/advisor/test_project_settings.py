"""Run-time settings that a project makes in its code and its other files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.project.settings.code_patterns import code_patterns
from advisor.project.settings.code_settings import may_set, settings_in_code
from advisor.project.settings.interface import ProjectSetting
from advisor.project.settings.project_settings import read_project_settings
from advisor.project.settings.variable_settings import settings_of_variable
from knowledge.catalogue.settings import ANY, JOINED_VARIABLES, code_of, environment_of, shipped_settings
from knowledge.domain.errors import InputError

PREAMBLE = "import torch\nimport tensorflow as tf\nimport keras\nimport jax\nimport onnxruntime\nimport cv2\n"

VALUES = [
    (setting.name, framework.backend, choice, "3" if choice.value == ANY else choice.value)
    for setting in shipped_settings().values()
    for framework in setting.frameworks
    for choice in framework.choices
]
CODE = [
    pytest.param(name, backend, value, id=f"{name}-{backend}-{value}")
    for name, backend, choice, value in VALUES
    # Parts of all programs that train have no gradients. An option inside a list of providers is not read.
    if choice.code
    and (name, value) != ("grad_mode", "no_grad")
    and (name, backend) != ("cudnn_benchmark", "onnxruntime")
]
VARIABLES = [
    pytest.param(name, backend, value, choice.library, id=f"{name}-{backend}-{value}")
    for name, backend, choice, value in VALUES
    if choice.environment
]


def of_file(folder: Path, name: str, text: str) -> list[tuple[str, str, int]]:
    """Return name, value and line of the settings that a file of a project makes."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return [(setting.name, setting.value, setting.line) for setting in read_project_settings(folder, {})]


def of_code(text: str) -> list[tuple[str, str, tuple[str, ...]]]:
    assert may_set(text.encode())
    return [(s.name, s.value, s.backends) for s in settings_in_code(text)]


@pytest.mark.parametrize(("name", "backend", "value"), CODE)
def test_every_line_of_the_catalogue_is_recognised(name: str, backend: str, value: str) -> None:
    text = PREAMBLE + "".join(f"{line}\n" for line in code_of({name: value}, backend))

    matches = of_code(text)

    assert (name, value, (backend,)) in matches
    # TensorFlow's threads are those of one operation and of several.
    assert {other for other, *_ in matches} - {"interop_threads"} == {name} - {"interop_threads"}


@pytest.mark.parametrize(("name", "backend", "value", "library"), VARIABLES)
def test_every_environment_variable_of_the_catalogue_is_recognised(
    name: str, backend: str, value: str, library: tuple[str, ...]
) -> None:
    libraries = {file: f"/usr/lib/{file}" for file in library}
    present = {
        variable: "--other" if separator == " " else "/lib/x.so" for variable, separator in JOINED_VARIABLES.items()
    }

    variables = environment_of({name: value}, backend, present=present, libraries=libraries)

    matches = {
        (setting.name, setting.value)
        for variable, text in variables.items()
        for setting in settings_of_variable(variable, text)
        if backend in setting.backends or not setting.backends
    }
    assert (name, value) in matches
    # TensorFlow's threads are those of one operation and of several.
    assert {other for other, _ in matches} - {"interop_threads"} == {name} - {"interop_threads"}


def test_a_variable_that_is_a_part_of_two_settings_is_the_smaller_one() -> None:
    (setting,) = settings_of_variable("TF_NUM_INTEROP_THREADS", "3")

    assert (setting.name, setting.value, setting.backends) == ("interop_threads", "3", ("tensorflow",))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("many", ["many"]),
        ("-1", ["-1"]),
        ("2147483648", ["2147483648"]),
        ("4,2", []),
        ("", []),
        (" 4 ", ["4"]),
        ("{{ .Values.threads }}", []),
        ("@THREADS@", []),
        ("a\n::error::b", []),
        ("\uff14" * 5000, []),
    ],
)
def test_a_word_is_a_value_where_only_numbers_have_a_meaning(text: str, values: list[str]) -> None:
    assert [s.value for s in settings_of_variable("OMP_NUM_THREADS", text) if s.name == "threads"] == values


def test_further_forms_set_values_of_the_catalogue() -> None:
    patterns = code_patterns()
    for pattern in (p for table in (patterns.calls, patterns.assignments) for listed in table.values() for p in listed):
        framework = shipped_settings()[pattern.setting].framework(pattern.backend)

        assert framework is not None
        assert framework.choice(pattern.value) is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch as t\nt.set_num_threads(4)\n", ("threads", "4")),
        ("from torch import set_num_threads as limit\nlimit(4)\n", ("threads", "4")),
        ("import torch\nN = 2 + 2\ntorch.set_num_threads(N)\n", ("threads", "4")),
        ("import torch.backends.cudnn as cudnn\ncudnn.benchmark = True\n", ("cudnn_benchmark", "on")),
        ("from torch.backends import cudnn\ncudnn.benchmark = False\n", ("cudnn_benchmark", "off")),
        ("import torch\n@torch.compile\ndef f(x):\n    return x\n", ("compile", "on")),
        ("import torch\n@torch.compile(mode='max-autotune')\ndef f(x):\n    return x\n", ("compile", "max-autotune")),
        ("from torch.cuda.amp import autocast\nwith autocast():\n    pass\n", ("amp", "float16")),
        ("from torch.cuda.amp import (\n    autocast,\n)\nwith autocast(True):\n    pass\n", ("amp", "float16")),
        ("import torch\nwith torch.autocast('cpu'):\n    pass\n", ("amp", "bfloat16")),
        ("import torch\nwith torch.autocast('cuda', torch.bfloat16):\n    pass\n", ("amp", "bfloat16")),
        ("from transformers import TrainingArguments\na = TrainingArguments('out', fp16=True)\n", ("amp", "float16")),
        ("from accelerate import Accelerator\na = Accelerator(mixed_precision='bf16')\n", ("amp", "bfloat16")),
        ("import torch\nx = x.to('cpu', memory_format=torch.channels_last)\n", ("memory_format", "channels_last")),
        ("import tensorflow as tf\n@tf.function(jit_compile=True)\ndef f(x):\n    return x\n", ("xla", "on")),
        (
            "from tensorflow.keras import mixed_precision\nmixed_precision.set_global_policy('mixed_bfloat16')\n",
            ("amp", "bfloat16"),
        ),
        (
            "import jax\njax.config.update('jax_default_matmul_precision', 'tensorfloat32')\n",
            ("tf32", "on"),
        ),
        (
            "import onnxruntime as ort\no = ort.SessionOptions()\n"
            "o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC\n",
            ("graph_optimisation", "basic"),
        ),
        ("import os\nos.environ.update({'TF_ENABLE_ONEDNN_OPTS': '0'})\n", ("onednn", "off")),
        ("import os\nos.environ.update(OMP_NUM_THREADS='4')\n", ("threads", "4")),
        ("from os import environ\nenviron |= {'OMP_NUM_THREADS': '4'}\n", ("threads", "4")),
        ("from os import environ as env\nenv['OMP_NUM_THREADS'] = '4'\n", ("threads", "4")),
        ("from os import environ as env\nenv.setdefault('OMP_NUM_THREADS', '4')\n", ("threads", "4")),
        ("import os\nenv = os.environ\nenv['OMP_NUM_THREADS'] = '4'\n", ("threads", "4")),
        ("from os import putenv\nputenv('OMP_NUM_THREADS', '4')\n", ("threads", "4")),
        ("import os\nos.environ.update(dict(OMP_NUM_THREADS='4'))\n", ("threads", "4")),
        ("import os\nos.environ.update(dict({'OMP_NUM_THREADS': '4'}, X=x))\n", ("threads", "4")),
        ("import os\nos.environ.update([('OMP_NUM_THREADS', '4')])\n", ("threads", "4")),
        ("import os\nos.environ.update(dict.fromkeys(['A', 'OMP_NUM_THREADS'], '4'))\n", ("threads", "4")),
        ("import os\nos.environ |= {n: str(4) for n in ('A', 'OMP_NUM_THREADS')}\n", ("threads", "4")),
        ("import os\nT = {'X': f(), 'OMP_NUM_THREADS': '4'}\nos.environ.update(**T)\n", ("threads", "4")),
        ("import os\nfor v in ('OMP_NUM_THREADS', 'A'):\n    os.environ[v] = '4'\n", ("threads", "4")),
        ("import os\nV = ['A', 'OMP_NUM_THREADS']\nfor v in V:\n    os.environ.setdefault(v, '4')\n", ("threads", "4")),
        ("import os\nfor k, v in {'OMP_NUM_THREADS': '4'}.items():\n    os.environ[k] = v\n", ("threads", "4")),
        ("import os\nfor k, v in (('A', '1'), ('OMP_NUM_THREADS', '4')):\n    os.environ[k] = v\n", ("threads", "4")),
        ("import os\n[os.environ.setdefault(v, '4') for v in ('OMP_NUM_THREADS',)]\n", ("threads", "4")),
        ("import os\nNAME = 'OMP_NUM_THREADS'\nos.environ[NAME] = '4'\n", ("threads", "4")),
        ("import torch\nt = torch; t.set_num_threads(4)\n", ("threads", "4")),
        ("import torch\nt = torch\nu = t\nu.set_num_threads(4)\n", ("threads", "4")),
        ("import torch\nlimit = torch.set_num_threads\nlimit(4)\n", ("threads", "4")),
    ],
)
def test_settings_are_read_from_code(text: str, expected: tuple[str, str]) -> None:
    assert [matches[:2] for matches in of_code(text)] == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nwith torch.autocast('cuda', enabled=False):\n    pass\n",
        "import torch\nwith torch.autocast('cuda', dtype=torch.float32):\n    pass\n",
        "import torch, re\np = re.compile('a')\n",
        "import torch\nf = torch.compile(f, disable=True)\n",
        "import other as torch\ntorch.set_num_threads(4)\n",
        "import keras\nmodel.compile(optimizer='adam')\n",
        "import tensorflow as tf\nmodel.compile(jit_compile='auto')\n",
        "import os\nos.environ['XLA_FLAGS'] = flags\n",
        "import torch\n# torch.set_num_threads(4)\n",
        "def f():\n    '''import torch; torch.set_num_threads(4)'''\n",
        "import torch\ntorch.backends.cudnn.allow_tf32 = True\n",
        "import os\nos.environ['OMP_PLACES'] = 'cores'\n",
        "import os, torch\nt = torch\nt = other\nt.set_num_threads(4)\n",
        "import os\nfor v in ('OMP_NUM_THREADS',):\n    other[v] = '4'\n",
        "import os\nfor v in names('OMP_NUM_THREADS'):\n    os.environ[v] = '4'\n",
        "import os\nfor OMP_NUM_THREADS in ('A', 'B'):\n    os.environ[OMP_NUM_THREADS] = '4'\n",
    ],
)
def test_other_code_sets_nothing(text: str) -> None:
    assert settings_in_code(text) == ()


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.set_num_threads(args.threads)\n",
        "import torch\ntorch.set_num_threads(0)\n",
        "import os\nos.environ['OMP_NUM_THREADS'] = str(n)\n",
        "import os\nfor n in ('1', '2'):\n    os.environ['OMP_NUM_THREADS'] = n\n",
        "import os\nfor v in ('A', 'OMP_NUM_THREADS'):\n    os.environ[v] = str(n)\n",
    ],
)
def test_a_value_that_only_the_program_knows_is_empty(text: str) -> None:
    assert [matches[:2] for matches in of_code(text)] == [("threads", "")]


@pytest.mark.parametrize(
    ("call", "device"),
    [
        ("torch.autocast('cuda', dtype=torch.bfloat16)", "cuda"),
        ("torch.autocast(device_type='cuda:1', dtype=torch.bfloat16)", "cuda"),
        ("torch.cuda.amp.autocast(dtype=torch.bfloat16)", "cuda"),
        ("torch.autocast('cpu')", "cpu"),
        ("x.to('cpu', memory_format=torch.channels_last)", "cpu"),
        ("torch.autocast(device, dtype=torch.bfloat16)", ""),
        ("torch.autocast('cuda' if torch.cuda.is_available() else 'cpu', dtype=torch.bfloat16)", ""),
        ("torch.set_num_threads(4)", ""),
    ],
)
def test_the_device_of_a_setting_is_read(call: str, device: str) -> None:
    (setting,) = settings_in_code(f"import torch\n{call}\n")

    assert setting.device == device


def test_loops_are_followed_with_bounded_work() -> None:
    loops = "".join(f"{'    ' * depth}for v{depth} in NAMES:\n" for depth in range(15))
    text = f"import os\nNAMES = ['OMP_NUM_THREADS', 'A', 'B', 'C']\n{loops}{'    ' * 15}os.environ[v0] = '4'\n"

    assert len(settings_in_code(text)) <= 1


def test_a_long_loop_hides_no_other_setting() -> None:
    text = (
        "import os, torch\n"
        f"for value in {list(range(2000))}:\n    os.environ['OTHER'] = 'OMP_NUM_THREADS'; torch.set_num_threads(1)\n"
        "for name in ('OMP_NUM_THREADS',):\n    os.environ[name] = '2'\n"
    )

    assert [(s.name, s.value) for s in settings_in_code(text)] == [("threads", "1"), ("threads", "2")]


def test_a_copy_of_the_environment_sets_nothing() -> None:
    text = "import os\nenviron = os.environ.copy()\nenviron['OMP_NUM_THREADS'] = '1'\n"

    assert settings_in_code(text) == ()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("import torch\nx = " + " + ".join(["1"] * 60_000) + "\ntorch.set_num_threads(1)\n", 0),
        ("import torch\ntorch.set_num_threads(1)\nprint 'x'\n", 3),
    ],
    ids=["a long expression", "another language"],
)
def test_a_file_with_words_of_settings_that_cannot_be_parsed_is_named(tmp_path: Path, content: str, line: int) -> None:
    (tmp_path / "a.py").write_text(content)

    (unread,) = read_project_settings(tmp_path, {}).unread

    assert (unread.file, unread.line) == ("a.py", line)


def test_a_file_without_words_of_settings_need_not_be_parsed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\nprint 'x'\n")

    assert read_project_settings(tmp_path, {}).unread == ()


def test_conditions_and_defaults_are_noted(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import os, torch\n"
        "os.environ.setdefault('OMP_NUM_THREADS', '2')\n"
        "if fast:\n    torch.backends.cudnn.benchmark = True\n"
        "if __name__ == '__main__':\n    torch.set_num_threads(3)\n"
    )
    (tmp_path / "run.sh").write_text(
        'export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}\nif [ -n "$FAST" ]; then\n  export OMP_NUM_THREADS=5\nfi\n'
    )

    matches = {
        (s.value, s.is_conditional, s.is_default, s.overrides_environment) for s in read_project_settings(tmp_path, {})
    }

    assert matches == {
        ("2", False, True, False),
        ("on", True, False, True),
        ("3", False, False, True),
        ("4", False, True, False),
        ("5", True, False, False),
    }


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("Dockerfile", "FROM x\nENV A=1 \\\n    OMP_NUM_THREADS=4\n", [("threads", "4", 3)]),
        ("docker/Dockerfile.gpu", "ENV TF_ENABLE_ONEDNN_OPTS 0\n", [("onednn", "off", 1)]),
        ("Dockerfile", "RUN export OMP_NUM_THREADS=4 && make\nARG OMP_NUM_THREADS=4\n", []),
        ("Dockerfile", 'ENTRYPOINT ["sh", "-c", "OMP_NUM_THREADS=2 python a.py"]\n', [("threads", "2", 1)]),
        (
            "Dockerfile",
            'ENV LD_PRELOAD="/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4:/usr/lib/other.so"\n',
            [("allocator", "tcmalloc", 1)],
        ),
        ("Dockerfile", "ENV OMP_NUM_THREADS=$THREADS\n", []),
        (".env", "# OMP_NUM_THREADS=3\nOMP_NUM_THREADS='4' # cores\n", [("threads", "4", 2)]),
        ("run.sh", "#!/bin/sh\nset -e\nOMP_NUM_THREADS=4 exec python train.py\n", [("threads", "4", 3)]),
        ("run.sh", "OMP_NUM_THREADS=4\npython train.py\n", []),
        ("run.sh", "OMP_NUM_THREADS=4\nexport OMP_NUM_THREADS\n", [("threads", "4", 1)]),
        ("run.sh", "cat <<EOF\n'\nEOF\ndocker run -e OMP_NUM_THREADS=4 image\n", [("threads", "4", 4)]),
        ("run.sh", "echo OMP_NUM_THREADS=4\n", []),
        ("run.sh", "export XLA_FLAGS='--xla_dump_to=/x --xla_cpu_max_isa=AVX2'\n", [("isa", "avx2", 1)]),
        ("job.slurm", "#!/bin/bash\n#SBATCH --export=ALL,OMP_NUM_THREADS=8\nsrun python a.py\n", [("threads", "8", 2)]),
        ("job.sbatch", "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\n", []),
        ("job.sbatch", 'export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-4}"\n', []),
        ("compose.yaml", "services:\n  a:\n    environment:\n      - OMP_NUM_THREADS=4\n", [("threads", "4", 4)]),
        ("compose.yaml", "services:\n  a:\n    environment:\n      OMP_NUM_THREADS: 4\n", [("threads", "4", 4)]),
        (
            ".github/workflows/ci.yml",
            "jobs:\n  t:\n    steps:\n      - run: |\n          cd a\n          OMP_NUM_THREADS=2 pytest\n",
            [("threads", "2", 6)],
        ),
        (".github/workflows/ci.yml", "env:\n  OMP_NUM_THREADS: ${{ matrix.threads }}\n", []),
        (".gitlab-ci.yml", "variables:\n  OMP_NUM_THREADS: {value: '4', description: x}\n", [("threads", "4", 2)]),
        (
            "k8s/job.yaml",
            "kind: Job\n---\nspec:\n  containers:\n    - env:\n        - name: OMP_NUM_THREADS\n          value: '4'\n",
            [("threads", "4", 7)],
        ),
        ("run.sh", "cat <<EOF\nexport OMP_NUM_THREADS=4\nEOF\nexport OMP_NUM_THREADS=2\n", [("threads", "2", 4)]),
        ("run.sh", "cat > a.sh <<-'END' && ls\n\texport OMP_NUM_THREADS=4\n\tEND\n", []),
        ("run.sh", "cat <<A <<B\nexport OMP_NUM_THREADS=4\nA\nexport OMP_NUM_THREADS=4\nB\n", []),
        ("run.sh", "sbatch <<EOF\nexport OMP_NUM_THREADS=4\nEOF\n", [("threads", "4", 2)]),
        ("run.sh", "ssh host bash -s <<'EOF'\nexport OMP_NUM_THREADS=4\nEOF\n", [("threads", "4", 2)]),
        ("run.sh", "n=$((1 << x))\necho '<<EOF'\nexport OMP_NUM_THREADS=4\nEOF\n", [("threads", "4", 3)]),
        ("Dockerfile", "FROM x\nCOPY <<EOF /a\nENV OMP_NUM_THREADS=4\nEOF\nENV A=1\n", []),
        ("k8s/map.yaml", "kind: ConfigMap\ndata:\n  TF_ENABLE_ONEDNN_OPTS: '1'\n", [("onednn", "on", 3)]),
        ("config.yaml", "model:\n  OMP_NUM_THREADS: 4\n", []),
    ],
)
def test_settings_are_read_from_other_files(
    tmp_path: Path, name: str, text: str, expected: list[tuple[str, str, int]]
) -> None:
    assert of_file(tmp_path, name, text) == expected


def test_a_notebook_is_read_without_lines(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "source": ["!pip install torch\n", "import torch\n", "torch.set_num_threads(2)"]}

    assert of_file(tmp_path, "a.ipynb", json.dumps({"cells": [cell]})) == [("threads", "2", 0)]


def test_the_table_of_the_project_is_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.advisor.settings]\nthreads = 4\n")

    expected = ProjectSetting(
        name="threads",
        value="4",
        backends=(),
        file="pyproject.toml",
        path=tmp_path / "pyproject.toml",
        line=2,
        origin="table",
    )
    assert read_project_settings(tmp_path, {"threads": 4}).settings == (expected,)


@pytest.mark.parametrize("settings", [{"treads": 4}, {"threads": 0}, {"onednn": "maybe"}])
def test_a_wrong_setting_in_the_table_is_an_error(tmp_path: Path, settings: dict[str, object]) -> None:
    with pytest.raises(InputError):
        read_project_settings(tmp_path, settings)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.yml", b"env: " + b"[" * 100_000 + b" OMP_NUM_THREADS"),
        ("a.yml", b"- " * 100_000 + b"OMP_NUM_THREADS"),
        (
            "a.yml",
            b"a: &a [x]\n" + b"".join(b"b%d: &b%d [*a, *a]\n" % (i, i) for i in range(2000)) + b"# OMP_NUM_THREADS",
        ),
        ("a.yml", b"env: &e {OMP_NUM_THREADS: 4, env: *e}\n\x00"),
        ("a.sh", b"export OMP_NUM_THREADS=" + b"9" * 10_000),
        ("a.sh", b"if " * 50_000 + b"OMP_NUM_THREADS=4 \\\n" * 1000),
        ("Dockerfile", b"CMD " + b"[" * 100_000 + b"OMP_NUM_THREADS"),
        (".env", b"\xff\xfeOMP_NUM_THREADS"),
        ("a.py", b"import torch\ntorch.set_num_threads(" + b"(" * 10_000),
        ("a.py", b"import torch\ntorch.set_num_threads(" + b"9" * 10_000 + b")"),
        ("a.py", b"import torch\nx = 10 ** 9\ntorch.set_num_threads(" + b"x + " * 2000 + b"1)"),
        ("a.ipynb", b'{"cells": "import torch; torch.set_num_threads(3)"}'),
    ],
)
def test_hostile_files_set_nothing(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)

    assert [s for s in read_project_settings(tmp_path, {}) if s.value] == []
