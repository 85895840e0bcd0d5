"""`advisor advise --show-code`: lines of Python for the recommended settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.report.environment import settings_code
from tests.advisor.inputs import is_error
from tests.conftest import Advisor
from tests.package_index import PackageIndex


def test_the_lines_of_each_framework_are_printed() -> None:
    text = settings_code({"torch": {"memory_format": "channels_last", "threads": 2}, "onnxruntime": {"threads": 2}})

    assert text.splitlines() == [
        "# onnxruntime",
        "# threads=2: number of threads of one operation (JAX: number of processors) (results differ by rounding)",
        "options.intra_op_num_threads = 2",
        "",
        "# torch",
        "# memory_format=channels_last: memory layout of images (results differ by rounding)",
        "model = model.to(memory_format=torch.channels_last)",
        "images = images.to(memory_format=torch.channels_last)",
    ]


def test_the_lines_are_python() -> None:
    text = settings_code(
        {
            "torch": {"amp": "bfloat16", "memory_format": "channels_last", "grad_mode": "inference_mode"},
            "tensorflow": {"xla": "on", "threads": 2},
            "onnxruntime": {"graph_optimisation": "all", "spinning": "off"},
        }
    )

    compile(text, "settings", "exec")


def test_settings_that_need_no_code_are_a_sentence() -> None:
    assert settings_code({"torch": {"threads": 2}}) == "No recommended setting needs code."


def test_the_option_adds_them_to_the_report(advisor: Advisor, index: PackageIndex, tmp_path: Path) -> None:
    index.add("a", "1.0", [])
    (tmp_path / "requirements.in").write_text("a\n")
    options = ("advise", "--dry-run", "--hardware", "cpu-zen4", "--python", "3.12", "--index-url", index.url)

    report = advisor(*options).stdout
    with_code = advisor(*options, "--show-code").stdout

    assert with_code == f"{report}\nNo recommended setting needs code.\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "json"), "`--show-code` and `--format json` contradict each other"),
        (("--update",), "`--update` recommends no settings"),
    ],
)
def test_options_without_a_place_for_code_contradict_it(
    options: tuple[str, ...], message: str, advisor: Advisor
) -> None:
    result = advisor("advise", "--show-code", *options)

    assert result.returncode == 2
    assert is_error(result.stderr)
    assert message in result.stderr
