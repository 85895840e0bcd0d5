"""What is proposed as benchmark of a project: its program, its options, its command, and the metric in an output."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest

from advisor.project.benchmark import check_benchmark
from advisor.project.benchmark_proposal.options import read_interface
from advisor.project.benchmark_proposal.output import metrics_of_output
from advisor.project.benchmark_proposal.proposal import BenchmarkProposal, propose_benchmark
from advisor.project.benchmark_proposal.table import with_benchmark
from knowledge.domain.errors import InputError

PROGRAMS = Path(__file__).parent.parent / "fixtures" / "programs"
TRAINING = (
    "import argparse, torch\nparser = argparse.ArgumentParser()\n{options}\noptions = parser.parse_args()\n"
    "if __name__ == '__main__':\n    torch.ones(1, requires_grad=True).sum().backward()\n"
)


def training(*options: str) -> str:
    """Return a program that trains, with the arguments of some calls of `add_argument`."""
    return TRAINING.format(options="\n".join(f"parser.add_argument({option})" for option in options))


def propose(folder: Path, files: dict[str, str], **request: Any) -> BenchmarkProposal:
    """Return the proposal for a project with some files."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return propose_benchmark(folder, **request)


def table(command: str, *steps: int) -> dict[str, Any]:
    """Return the table with a command, which has ``{}`` for its steps, and those of its start-up."""
    texts = [f"python {command.format(number)}".strip() for number in steps]
    return dict(zip(("command", "startup"), texts, strict=True)) if steps else {"command": f"python {command}".strip()}


def options_of(folder: Path, code: str) -> dict[str, tuple[Any, bool, str]]:
    """Return default, necessity and form of each option of a program."""
    interface = read_interface(folder, {"train.py": ast.parse(code)})
    return {option.flag: (option.default, option.required, option.form) for option in interface.options}


@pytest.mark.parametrize(
    ("project", "command", "places"),
    [
        (
            "torch-training",
            "train.py --output-dir benchmark-output --steps-per-epoch {} --epochs 1 --dataset synthetic",
            ["train.py:26", "train.py:23", "train.py:22", "train.py:25"],
        ),
        ("numpy-simulation", "simulate.py --iterations {}", ["simulate.py:11"]),
        ("plain-service", "serve.py --requests {}", ["serve.py:18"]),
    ],
)
def test_a_small_project_gets_a_command_with_few_steps_and_the_places_that_declare_them(
    project: str, command: str, places: list[str]
) -> None:
    proposal = propose_benchmark(PROGRAMS / project)

    assert proposal.table == table(command, 25, 5)
    assert [choice.option.place for choice in proposal.command.choices] == places
    check_benchmark(proposal.table)


def test_the_program_that_trains_is_proposed_and_the_others_are_listed(tmp_path: Path) -> None:
    guard = "if __name__ == '__main__':\n    {}\n"
    proposal = propose(
        tmp_path,
        {
            "plot.py": "import numpy\n" + guard.format("numpy.ones(1)"),
            "tools/train.py": training("'--epochs'"),
            "setup.py": "from setuptools import setup\n" + guard.format("setup()"),
            "library.py": "import torch\ndef fit(model): model.fit()\n",
            "server.py": "import flask\napp = flask.Flask('x')\n" + guard.format("app.run()"),
            "chat.py": guard.format("print(input())"),
            "broken.py": guard.format("print 'x'"),
            "notes.ipynb": "{}",
            "tests/train.py": training(),
        },
    )

    assert proposal.command.text == "python tools/train.py --epochs 2"
    assert proposal.others == ("plot.py",)
    assert sorted(proposal.skipped) == [
        "`broken.py`: cannot be parsed: Missing parentheses in call to 'print'. Did you mean print(...)? "
        "(<unknown>, line 2)",
        "`chat.py`: reads what a user types",
        "`notes.ipynb`: is a notebook; only programs are run",
        "`server.py`: starts a server, which does not end",
    ]


@pytest.mark.parametrize(
    ("options", "arguments", "steps"),
    [
        # The steps of the whole program come before those of an epoch, and these before epochs.
        (["'--epochs', default=90", "'--max_steps', default=-1"], "--max_steps {} --epochs 1", (25, 5)),
        (["'--epochs', default=90"], "--epochs {}", (2, 1)),
        (["'--epochs', default=90", "'--max-samples'"], "--epochs {} --max-samples 1000", (2, 1)),
        # A rollout of reinforcement learning needs many steps of its environment.
        (["'--num-steps'", "'--total-timesteps', default=500000"], "--total-timesteps {}", (5000, 1000)),
        (["'--synthetic', action='store_true'", "'--iters', default=3"], "--iters {} --synthetic", (3, 1)),
        # Nothing limits the steps: nothing is subtracted.
        (["'--lr', default=0.1"], "", ()),
        (["'--device', required=True, choices=['cpu']"], "--device cpu", ()),
        (["'data'", "'--weights', required=True", "'--epochs'"], "DATA --weights WEIGHTS --epochs {}", (2, 1)),
    ],
)
def test_options_that_limit_the_steps_get_small_values(
    tmp_path: Path, options: list[str], arguments: str, steps: tuple[int, ...]
) -> None:
    assert propose(tmp_path, {"train.py": training(*options)}).table == table(f"train.py {arguments}", *steps)


PACKAGE = {
    "src/net/__init__.py": "",
    "src/net/options.py": "import argparse\ndef parser():\n    argparse.ArgumentParser().add_argument('--epochs')\n",
    "src/net/train.py": "from .options import parser\nif __name__ == '__main__':\n    parser(); loss.backward()\n",
}
ENTRY = {
    "pyproject.toml": '[project]\nname = "x"\n[project.scripts]\nx = "net.cli:run"\n',
    "net/cli.py": "import torch\ndef run():\n    torch.ones(1).backward()\n",
}
HYDRA = {
    "train.py": "import hydra, torch\n@hydra.main(config_path='conf', config_name='main')\n"
    "def main(cfg): x.backward()\nif __name__ == '__main__':\n    main()\n",
    "conf/main.yaml": "defaults:\n  - trainer: small\n  - _self_\nseed: 1\n",
    "conf/trainer/small.yaml": "lr: 0.1\nmax_steps: 1000\n",
}
# The second command has no placeholder; it continues in the next line.
README = (
    "# Train\n\n```sh\n$ CUDA_VISIBLE_DEVICES=0 python train.py <DATA>\n"
    "$ python ./train.py \\\n    samples --epochs 90 --lr 0.1 2>&1 > log && ls\n```\n"
)
DOCUMENTED = {"train.py": training("'data'", "'--epochs'", "'--lr'"), "README.md": README}
GIVEN = {"train.py": training("'data'", "'--epochs'"), "a.csv": "1"}
NUMBERED = {"train.py": training("'--epochs'", "'--max-steps'")}
NAMED = {"train.py": training("'--epochs'"), "benchmarks/speed.py": training("'--steps', default=10")}


@pytest.mark.parametrize(
    ("files", "request_", "command", "steps", "place"),
    [
        (NAMED, {}, "benchmarks/speed.py --steps {}", (10, 2), "benchmarks/speed.py:3"),
        (DOCUMENTED, {}, "train.py samples --epochs {} --lr 0.1", (2, 1), "train.py:4"),
        # A module of a package that imports relatively runs as a module.
        (PACKAGE, {}, "-m net.train --epochs {}", (2, 1), "src/net/options.py:3"),
        (ENTRY, {}, "-c 'from net.cli import run as main; main()'", (), ""),
        (HYDRA, {}, "train.py trainer.max_steps={}", (25, 5), "conf/trainer/small.yaml:2"),
        # A command of the user keeps its words.
        (
            GIVEN,
            {"command": "python -X utf8 train.py a.csv --epochs=10"},
            "-X utf8 train.py a.csv --epochs={}",
            (10, 2),
            "",
        ),
        (NUMBERED, {"steps": 400}, "train.py --max-steps {} --epochs 1", (400, 80), "train.py:4"),
    ],
    ids=["benchmark", "documented", "package", "entry point", "hydra", "given", "steps"],
)
def test_a_program_is_run_as_its_project_runs_it_with_few_steps(
    tmp_path: Path, files: dict[str, str], request_: dict[str, Any], command: str, steps: tuple[int, ...], place: str
) -> None:
    proposal = propose(tmp_path, files, **request_)

    further = [name for name in files if name.endswith((".yaml", "a.csv"))]
    assert proposal.table == table(command, *steps) | ({"files": ["**/*.py", *further]} if further else {})
    assert [choice.option.place for choice in proposal.command.choices][:1] == ([place] if place else [])
    assert proposal.command.documented == ("README.md:5" if files is DOCUMENTED else "")
    assert proposal.command.open_values == ()


def test_values_that_only_the_user_knows_are_left_open(tmp_path: Path) -> None:
    program = {"train.py": training("'data'", "'--weights', required=True", "'--epochs'")}
    documented = {"train.py": training("'data'"), "README.md": "    python train.py /path/to/data\n"}

    assert propose(tmp_path / "a", program).command.open_values == ("`data` (train.py:3)", "`--weights` (train.py:4)")
    assert propose(tmp_path / "b", documented).command.open_values == ("`/path/to/data` (README.md:1)",)


def test_a_required_choice_between_several_values_is_left_to_the_user(tmp_path: Path) -> None:
    options = "'--mode', required=True, choices=['delete-cache', 'train']"

    command = propose(tmp_path, {"train.py": training(options)}).command

    assert command.text == "python train.py --mode MODE"
    assert command.open_values == ("`--mode` (train.py:3: one of `delete-cache`, `train`)",)


@pytest.mark.parametrize("decorator", ["@click.group()", "@click.group"])
def test_a_click_group_needs_a_subcommand_also_if_it_has_only_one(tmp_path: Path, decorator: str) -> None:
    code = (
        f"import click, torch\n{decorator}\ndef cli(): pass\n@cli.command()\n@click.option('--num-steps')\n"
        "def train(num_steps): torch.ones(1).backward()\nif __name__ == '__main__':\n    cli()\n"
    )

    open_values = propose(tmp_path, {"main.py": code}).command.open_values

    assert [value.partition(" (")[0] for value in open_values] == ["has subcommands"]


def test_a_typer_application_with_one_command_needs_no_subcommand(tmp_path: Path) -> None:
    code = (
        "import typer, torch\napp = typer.Typer()\n@app.command()\ndef train(num_steps: int = 9):\n"
        "    torch.ones(1).backward()\nif __name__ == '__main__':\n    app()\n"
    )

    assert propose(tmp_path, {"main.py": code}).table == table("main.py --num-steps {}", 9, 1)


@pytest.mark.parametrize(
    "mark",
    [
        "mark_flag_as_required('data_dir')",
        "mark_flags_as_required(flag_names=['data_dir', 'seed'])",
        "mark_flag_as_required(_DATA)",
        "mark_flags_as_required([_DATA.name])",
    ],
)
def test_a_flag_that_absl_marks_as_required_is_left_open(tmp_path: Path, mark: str) -> None:
    code = (
        "from absl import app, flags\nimport torch\n_DATA = flags.DEFINE_string('data_dir', None, 'Data.')\n"
        "flags.DEFINE_integer('num_steps', 100, 'Steps.')\nflags.DEFINE_integer('seed', 1, 'It has a value.')\n"
        "def main(argv): torch.ones(1).backward()\n"
        f"if __name__ == '__main__':\n    flags.{mark}\n    app.run(main)\n"
    )

    command = propose(tmp_path, {"main.py": code}).command

    assert command.open_values == ("`--data_dir` (main.py:3)",)


@pytest.mark.parametrize(
    ("code", "options"),
    [
        (
            "import argparse\np = argparse.ArgumentParser()\nN = 7\np.add_argument('-n', '--steps', default=N)\n"
            "p.add_argument('data', nargs='?')\np.add_argument('--fast', action='store_true')\n",
            {"--steps": (7, False, "space"), "data": (None, False, "argument"), "--fast": (None, False, "switch")},
        ),
        (
            "import click\n@click.command()\n@click.option('-e', '--epochs', default=3)\n"
            "@click.option('--fast/--slow')\n@click.argument('data')\ndef main(epochs): pass\n",
            {"--epochs": (3, False, "space"), "--fast": (None, False, "switch"), "data": (None, True, "argument")},
        ),
        (
            "import typer\ndef main(data: str, max_steps: int = 9, epochs: int = typer.Option(4, '--ep')): pass\n"
            "typer.run(main)\n",
            {"data": (None, True, "argument"), "--max-steps": (9, False, "space"), "--ep": (4, False, "space")},
        ),
        (
            "import fire\ndef main(data, max_steps=9): pass\nfire.Fire(main)\n",
            {"--data": (None, True, "space"), "--max_steps": (9, False, "space")},
        ),
        (
            "from absl import flags\nflags.DEFINE_integer('num_steps', 100, 'Steps.')\n"
            "flags.DEFINE_string('data', None, 'Data.', required=True)\n",
            {"--num_steps": (100, False, "equals"), "--data": (None, True, "equals")},
        ),
        (
            "import tyro\nfrom dataclasses import dataclass\n@dataclass\nclass Args:\n    total_timesteps: int = 500\n"
            "    data: str\ntyro.cli(Args)\n",
            {"--total-timesteps": (500, False, "space"), "--data": (None, True, "space")},
        ),
        (
            "import transformers\nfrom dataclasses import dataclass, field\n@dataclass\nclass Model:\n"
            "    model: str = field(default='gpt2')\n"
            "class Training(transformers.TrainingArguments): pass\ntransformers.HfArgumentParser((Model, Training))\n",
            {
                "--model": ("gpt2", False, "space"),
                "--max_steps": (-1, False, "space"),
                "--num_train_epochs": (3.0, False, "space"),
                "--output_dir": (None, True, "space"),
            },
        ),
        # Without a parser, these are no options of the program.
        ("import transformers\ntransformers.TrainingArguments(output_dir='x', max_steps=10)\n", {}),
    ],
    ids=["argparse", "click", "typer", "fire", "absl", "tyro", "transformers", "trainer"],
)
def test_the_options_of_a_program_are_read_from_its_code(
    tmp_path: Path, code: str, options: dict[str, tuple[Any, bool, str]]
) -> None:
    assert options_of(tmp_path, code) == options


@pytest.mark.parametrize(
    ("files", "request_", "message"),
    [
        ({"README.md": "x"}, {}, "has no program that a benchmark could run"),
        ({"a.py": "def f(): pass"}, {}, "has no program that a benchmark could run"),
        (
            {"plot.py": "if __name__ == '__main__':\n    pass"},
            {},
            "none of the programs of .* looks like one to measure: `plot.py`",
        ),
        ({"train.py": training()}, {"script": "other.py"}, "`other.py` is not a program of the project"),
        ({"chat.py": "input()"}, {"script": "chat.py"}, "`chat.py`: reads what a user types"),
        ({}, {"command": "python 'x"}, "cannot be split into words"),
        ({"run.py": training()}, {"script": "run.py", "steps": 9}, "no option of `python run.py` limits its steps"),
    ],
)
def test_a_project_without_a_suitable_program_gets_an_error(
    tmp_path: Path, files: dict[str, str], request_: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        propose(tmp_path, files, **request_)


@pytest.mark.parametrize(
    ("lines", "value", "unit", "better", "statistic"),
    [
        (["loss 0.5", "throughput: 312.5 images/s"], 312.5, "images/s", "higher", ""),
        (["Throughput: 312.5"], 312.5, "items/s", "higher", ""),
        (["processed 250 samples per second"], 250, "samples/s", "higher", ""),
        (["tokens/sec = 1e3"], 1e3, "tokens/s", "higher", ""),
        (["FPS: 30.5"], 30.5, "frames/s", "higher", ""),
        (["0.53 ms for a request"], 0.53, "ms", "lower", ""),
        (["mean latency: 2.5 ms"], 2.5, "ms", "lower", ""),
        (["32/32 - 3s - 12ms/step - loss: 2.3"], 12, "ms", "lower", ""),
        ([f"iter {n}: loss 2.1, time {t}ms, mfu 3%" for n, t in enumerate((90, 10, 11))], 11, "ms", "lower", "median"),
        ([f"step {n}: {r} samples/s" for n, r in enumerate((5, 80, 90))], 80, "samples/s", "higher", "median"),
        (["\r 50% 1/2 [00:01, 3.0it/s]\r100% 2/2 [00:01, 4.0it/s]"], 4.0, "it/s", "higher", "last"),
        # The rate of training, not of evaluation; a rate, not a total; no download.
        (["eval: 900 images/s", "train: 300 images/s"], 300, "images/s", "higher", ""),
        (["took 3.2 seconds", "data 10 MB/s", "312 images/s"], 312, "images/s", "higher", ""),
    ],
)
def test_the_metric_is_a_rate_or_the_time_of_a_step_in_the_output(
    lines: list[str], value: float, unit: str, better: str, statistic: str
) -> None:
    metric = metrics_of_output(lines)[0]

    assert (metric.value, metric.metric.unit, metric.metric.better) == (value, unit, better)
    assert metric.metric.statistic == statistic


@pytest.mark.parametrize(
    "line", ["loss 0.5", "epoch 3/10", "10 MB/s", "0 images/s", "1,234.5 images/s", "lr 1e-3 s", ""]
)
def test_other_numbers_are_no_metric(line: str) -> None:
    assert metrics_of_output([line]) == ()


def test_the_duration_without_start_up_is_better_than_a_progress_bar(tmp_path: Path) -> None:
    bar = metrics_of_output(["100% 2/2 [00:01, 4.0it/s]"])
    limited = propose(tmp_path / "a", {"train.py": training("'--epochs'")}).with_metric(bar)
    unlimited = propose(tmp_path / "b", {"train.py": training()}).with_metric(bar)

    assert limited.table == table("train.py --epochs {}", 2, 1)
    assert unlimited.table["metric"]["unit"] == "it/s"
    assert unlimited.table["metric"]["statistic"] == "last"


TABLE = {
    "command": "python train.py --name 'a b'",
    "metric": {"pattern": r'"([0-9.]+) *images/s', "unit": "images/s", "better": "higher"},
    "files": ["**/*.py", "a.yaml"],
}


@pytest.mark.parametrize(
    "text",
    [
        "",
        '# comment\n[project]\nname = "x" # kept\n',
        "[tool.advisor]\nworkload = 'numeric'\n\n[tool.advisor.targets.ci]\npython = '3.12'\n",
        "\r\n".join(["[project]", 'name = "x"', ""]),
        "[project]\nname = 'x'",
        "[[tool.uv.index]]\nname = 'a'\n",
        'text = """\n[tool.advisor.benchmark]\n"""\n',
    ],
)
def test_the_table_is_added_and_the_rest_of_the_file_stays(text: str) -> None:
    result = with_benchmark(text, TABLE)

    assert result.startswith(text.rstrip())
    document = tomllib.loads(result)
    assert document["tool"]["advisor"]["benchmark"] == TABLE
    assert ("\r\n" in result) == ("\r\n" in text)
    assert "\n" not in result.replace("\r\n", "") if "\r\n" in text else True


def test_a_table_is_replaced_with_its_own_tables_and_the_others_stay() -> None:
    before = "[project]\nname = 'x'\n\n"
    own = "[tool.advisor.benchmark]\ncommand = 'x'\n[tool.advisor.benchmark.metric]\nunit = 's'\n"
    after = "[tool.ruff] # comment\nline-length = 1\n"

    result = with_benchmark(f"{before}{own}{after}", TABLE)

    assert result.startswith(f"{before}{after}")
    assert result.count("[tool.advisor.benchmark") == 1
    assert tomllib.loads(result)["tool"] == {"ruff": {"line-length": 1}, "advisor": {"benchmark": TABLE}}


@pytest.mark.parametrize(
    "text",
    [
        "tool = { advisor = { workload = 'numeric' } }\n",
        "[tool.advisor]\nbenchmark.command = 'x'\n",
        "[tool.advisor]\nbenchmark = { command = 'x' }\n",
        "[tool.advisor.benchmark]\nfiles = [\n  'a',\n]\ncommand = '''\n[x]\n'''\n[tool.a]\n",
    ],
)
def test_a_file_that_cannot_be_extended_is_refused_or_stays_correct(text: str) -> None:
    try:
        result = with_benchmark(text, TABLE)
    except InputError as error:
        assert "without changing other lines" in error.message
    else:
        assert tomllib.loads(result)["tool"]["advisor"]["benchmark"] == TABLE
