from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from advisor.project.formats.conda import specifier_of
from advisor.project.interface import ProjectRequirements, SelectedParts
from advisor.project.read import read_project
from knowledge.domain.errors import InputError


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def requirements(project: ProjectRequirements) -> list[str]:
    return [str(root.requirement) for root in project.roots]


# environment.yml and pixi.toml

ENVIRONMENT = """name: mine
channels:
  - pytorch
dependencies:
  - python=3.8.5
  - pip=20.3
  - cudatoolkit=11.0
  - pytorch::pytorch=1.7.0
  - numpy=1.19.2=py38h54aff64_0
  - conda-forge::opencv>=4.5,<5
  - pillow 8.1.*
  - ffmpeg
  - pip:
    - albumentations==0.4.3
    - -r more/others.txt
    - "omegaconf>=2.1 ; python_version < '3.9'"
"""


def test_a_conda_environment_is_read_with_its_pip_section(tmp_path: Path) -> None:
    write(tmp_path, "environment.yml", ENVIRONMENT)
    write(tmp_path, "more/others.txt", "einops==0.3.0\n")

    project = read_project(tmp_path)

    assert requirements(project) == [
        "torch==1.7.0.*",
        "numpy==1.19.2",
        "opencv-python<5,>=4.5",
        "pillow==8.1.*",
        "albumentations==0.4.3",
        "einops==0.3.0",
        'omegaconf>=2.1; python_version < "3.9"',
    ]
    assert [root.origin for root in project.roots][-3:] == ["environment.yml:14", "others.txt:1", "environment.yml:16"]
    assert project.requires_python == "==3.8.*"
    assert "`cudatoolkit`, `ffmpeg`" in project.skipped[0]


def test_an_environment_that_is_not_read_is_named(tmp_path: Path) -> None:
    write(tmp_path, "environment.yml", ENVIRONMENT)
    write(tmp_path, "requirements.txt", "numpy\n")

    project = read_project(tmp_path)

    assert requirements(project) == ["numpy"]
    assert project.skipped == ("`environment.yml` was not read: another file lists the requirements",)


@pytest.mark.parametrize(
    ("version", "specifier"),
    [
        ("", ""),
        ("*", ""),
        ("=1.2", "==1.2.*"),
        ("==1.2", "==1.2"),
        ("1.2", "==1.2"),
        ("1.2.*", "==1.2.*"),
        ("=1.2.*", "==1.2.*"),
        ("=3.1.3b2", "==3.1.3b2"),
        ("=1.2.3=py38_0", "==1.2.3"),
        ("1.2.3 py38_0", "==1.2.3"),
        (">= 1.2, < 2", ">=1.2,<2"),
        (">=1.2.*", ">=1.2"),
        ("!=1.2.*", "!=1.2.*"),
        ("~=1.2", "~=1.2"),
    ],
)
def test_versions_of_conda_become_specifiers(version: str, specifier: str) -> None:
    assert specifier_of(version) == specifier


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- numpy\n", "`environment.yml` has no list `dependencies`"),
        ("dependencies: [numpy=1.2|1.3]\n", "environment.yml:1: `=1.2|1.3` is not a version"),
        ("dependencies:\n- npm: [x]\n", "environment.yml:2: `npm` is not the list `pip`"),
        ("dependencies:\n- '[x]'\n", "environment.yml:2: `[x]` is not a conda package"),
        ("dependencies: [\n", "is not valid YAML"),
        ("dependencies:\n- pip:\n  - a b c\n", "environment.yml:3: `a b c` is not a requirement"),
    ],
)
def test_a_wrong_environment_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, "environment.yml", text)

    with pytest.raises(InputError) as caught:
        read_project(tmp_path)

    assert message in caught.value.message.replace(f"{tmp_path}/", "")


PIXI = """[workspace]
name = "mine"
channels = ["conda-forge"]
platforms = ["linux-64"]
pypi-options = { extra-index-urls = ["https://download.pytorch.org/whl/cpu"] }

[dependencies]
python = ">=3.10,<3.13"
numpy = "2.1.*"
cuda-toolkit = "*"

[pypi-dependencies]
torch = { version = ">=2.4", extras = ["opt-einsum"] }
einops = "*"

[feature.test.pypi-dependencies]
pytest = ">=8"
"""


def test_pixi_is_read_with_features(tmp_path: Path) -> None:
    write(tmp_path, "pixi.toml", PIXI)

    project = read_project(tmp_path, selection=SelectedParts(groups=("test",)))

    assert requirements(project) == ["numpy==2.1.*", "torch[opt-einsum]>=2.4", "einops", "pytest>=8"]
    assert project.requires_python in (">=3.10,<3.13", "<3.13,>=3.10")
    assert project.extra_index_urls == ("https://download.pytorch.org/whl/cpu",)
    assert "`cuda-toolkit`" in project.skipped[0]


# setup.cfg and setup.py

SETUP_PY = """
from setuptools import setup, find_packages
raise SystemExit("this file is read, not run")
VERSION = "1.0"
CORE = ["numpy>=1.20", "scipy"]
PLOTS = ["matplotlib"]
EXTRAS = {"plots": PLOTS, "all": PLOTS + ["pandas"]}
setup(
    name="mine",
    version=VERSION,
    python_requires=">=3.8",
    install_requires=CORE + [f"mine-core=={VERSION}", *PLOTS],
    extras_require=EXTRAS,
)
"""


def test_setup_py_is_read_without_running_it(tmp_path: Path) -> None:
    write(tmp_path, "setup.py", SETUP_PY)

    project = read_project(tmp_path, selection=SelectedParts(extras=("all",)))

    assert requirements(project) == [
        "numpy>=1.20",
        "scipy",
        "mine-core==1.0",
        "matplotlib",
        "matplotlib",
        "pandas",
    ]
    assert (project.requires_python, project.roots[0].origin) == (">=3.8", "setup.py:5")


COMPUTED = """
import os
from setuptools import setup
def lines(name):
    with open(os.path.join(os.path.dirname(__file__), "requirements", name)) as file:
        return [line.strip() for line in file if line]
setup(name="mine", install_requires=lines("needed.txt"))
"""


def test_a_computed_list_is_read_from_the_file_that_setup_py_mentions(tmp_path: Path) -> None:
    write(tmp_path, "setup.py", COMPUTED.replace('"requirements", name', '"requirements", "needed.txt"'))
    write(tmp_path, "requirements/needed.txt", "torch\n# comment\n")

    project = read_project(tmp_path)

    assert requirements(project) == ["torch"]
    assert project.skipped == ("`setup.py` computes `install_requires`: `needed.txt`, which it mentions, was read",)


@pytest.mark.parametrize(
    "code",
    [
        "L = ['a']\nL.append('b')\nsetup(install_requires=L)",
        "L = ['a']\nL += ['b']\nsetup(install_requires=L)",
        "L = ['a']\nif True:\n    L = ['b']\nsetup(install_requires=L)",
        "L = ['a']\nL[0] = 'b'\nsetup(install_requires=L)",
        "for L in (['a'],): pass\nsetup(install_requires=L)",
        "import os\nsetup(install_requires=os.environ['X'].split())",
        "def sorted(x): return x\nsetup(install_requires=sorted(['a']))",
        "setup(install_requires=['a'])\nsetup(install_requires=['b'])",
    ],
)
def test_requirements_that_only_a_build_knows_are_not_guessed(tmp_path: Path, code: str) -> None:
    write(tmp_path, "setup.py", f"from setuptools import setup\n{code}\n")

    with pytest.raises(InputError, match="only known after a build"):
        read_project(tmp_path)


def test_setup_cfg_replaces_setup_py(tmp_path: Path) -> None:
    write(tmp_path, "setup.py", "from setuptools import setup\nsetup(install_requires=['wrong'])\n")
    write(
        tmp_path,
        "setup.cfg",
        "[options]\npython_requires = >=3.9\ninstall_requires =\n    numpy>=1.20\n    scipy # fast\n"
        "[options.extras_require]\nplots =\n    matplotlib\n",
    )

    project = read_project(tmp_path, selection=SelectedParts(extras=("plots",)))

    assert (requirements(project), project.requires_python) == (["numpy>=1.20", "scipy", "matplotlib"], ">=3.9")


def test_setup_cfg_may_name_a_file(tmp_path: Path) -> None:
    write(tmp_path, "setup.cfg", "[options]\ninstall_requires = file: needed.txt\n")
    write(tmp_path, "needed.txt", "numpy\n")

    assert requirements(read_project(tmp_path)) == ["numpy"]


# Dynamic dependencies of pyproject.toml

SETUPTOOLS = """[project]
name = "mine"
requires-python = ">=3.10"
dynamic = ["dependencies", "optional-dependencies"]
[tool.setuptools.dynamic]
dependencies = { file = ["needed.txt"] }
optional-dependencies.plots = { file = "plots.txt" }
[tool.advisor]
hardware = "h200"
"""


def test_dynamic_dependencies_of_setuptools_are_read_from_their_file(tmp_path: Path) -> None:
    write(tmp_path, "pyproject.toml", SETUPTOOLS)
    write(tmp_path, "needed.txt", "numpy>=1.26\n")
    write(tmp_path, "plots.txt", "matplotlib\n")

    project = read_project(tmp_path, selection=SelectedParts(extras=("plots",)))

    assert requirements(project) == ["numpy>=1.26", "matplotlib"]
    assert (project.requires_python, project.settings) == (">=3.10", {"hardware": "h200"})


def test_dynamic_dependencies_are_read_from_setup_py(tmp_path: Path) -> None:
    write(tmp_path, "pyproject.toml", '[project]\nname = "mine"\ndynamic = ["dependencies"]\n')
    write(tmp_path, "setup.py", "from setuptools import setup\nsetup(install_requires=['numpy'])\n")

    assert requirements(read_project(tmp_path)) == ["numpy"]


def test_dynamic_dependencies_of_hatch_are_read_from_their_file(tmp_path: Path) -> None:
    hook = "[tool.hatch.metadata.hooks.requirements_txt]\nfiles = ['needed.txt']\n"
    write(tmp_path, "pyproject.toml", f'[project]\nname = "mine"\ndynamic = ["dependencies"]\n{hook}')
    write(tmp_path, "needed.txt", "numpy\n")

    assert requirements(read_project(tmp_path)) == ["numpy"]


# Files with other names


def test_the_only_requirements_file_is_read(tmp_path: Path) -> None:
    write(tmp_path, "requirements_torch.txt", "torch\n")

    project = read_project(tmp_path)

    assert requirements(project) == ["torch"]
    assert "`requirements_torch.txt` was read" in project.skipped[0]


def test_the_main_file_of_a_directory_is_read(tmp_path: Path) -> None:
    for name in ("base", "docs", "test"):
        write(tmp_path, f"requirements/{name}.txt", f"{name}-package\n")

    project = read_project(tmp_path)

    assert requirements(project) == ["base-package"]
    assert "`requirements/docs.txt`, `requirements/test.txt` were not read" in project.skipped[1]


def test_several_files_without_a_main_one_are_named(tmp_path: Path) -> None:
    write(tmp_path, "requirements_tf.txt", "tensorflow\n")
    write(tmp_path, "requirements_torch.txt", "torch\n")

    with pytest.raises(InputError) as caught:
        read_project(tmp_path)

    assert "`requirements_tf.txt`, `requirements_torch.txt`" in caught.value.message
    assert "--requirements requirements_tf.txt" in caught.value.hint


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: codecs.BOM_UTF8 + text.encode(),
        lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
        lambda text: text.encode("latin-1"),
        lambda text: text.replace("\n", "\r\n").encode(),
    ],
    ids=["utf-8-sig", "utf-16", "latin-1", "crlf"],
)
@pytest.mark.parametrize("name", ["pyproject.toml", "Pipfile", "environment.yml", "setup.py"])
def test_files_are_read_in_the_encodings_of_editors(tmp_path: Path, name: str, encode: object) -> None:
    texts = {
        "pyproject.toml": '[project]\nname = "mine" # é\ndependencies = ["numpy"]\n',
        "Pipfile": '[packages]\nnumpy = "*" # é\n',
        "environment.yml": "dependencies:\n- numpy # é\n",
        "setup.py": "from setuptools import setup\nsetup(install_requires=['numpy']) # é\n",
    }
    (tmp_path / name).write_bytes(encode(texts[name]))  # type: ignore[operator]

    project = read_project(tmp_path)

    assert (requirements(project), project.roots[0].line) == (
        ["numpy"],
        texts[name].count("\n", 0, texts[name].index("numpy")) + 1,
    )


def test_index_options_of_all_files_of_dynamic_dependencies_are_used(tmp_path: Path) -> None:
    write(tmp_path, "pyproject.toml", SETUPTOOLS.replace('["needed.txt"]', '["needed.txt", "more.txt"]'))
    write(tmp_path, "needed.txt", "--extra-index-url https://example.org/simple\nnumpy\n")
    write(tmp_path, "more.txt", "scipy\n")

    project = read_project(tmp_path)

    assert (requirements(project), project.extra_index_urls) == (["numpy", "scipy"], ("https://example.org/simple",))


@pytest.mark.parametrize(
    ("lines", "hint"),
    [
        ("numpy\npandas  2.2.2\n", "write it as `pandas==2.2.2`"),
        ("torch=2.3.0+cu118\n", "write it as `torch==2.3.0+cu118`"),
        ("torch: 2.3\n", "write it as `torch==2.3`"),
        ("_libgcc_mutex=0.1=main\nabsl-py=1.3.0=pypi_0\n", "this is the output of `conda list --export`"),
        ("six=>1.0\n", "write `>=` instead of `=>`"),
        ("pip install six\n", "write the packages only"),
        ("numpy !! 2\n", ""),
    ],
)
def test_malformed_lines_have_a_hint_about_what_to_write(tmp_path: Path, lines: str, hint: str) -> None:
    write(tmp_path, "requirements.txt", lines)

    with pytest.raises(InputError, match=r"requirements\.txt:[12]: `.*` is not a requirement") as raised:
        read_project(tmp_path)

    assert hint in raised.value.hint if hint else not raised.value.hint


def test_the_number_of_malformed_lines_is_reported(tmp_path: Path) -> None:
    for lines, message in (
        ("pandas 2\nscipy 1\n", "1 more line; 1 could"),
        ("pandas 2\nb 1\nc 2\n", "2 more lines; 1 could"),
    ):
        write(tmp_path, "requirements.txt", f"numpy\n{lines}")

        with pytest.raises(InputError, match=rf"\(and {message} be read\)"):
            read_project(tmp_path)


def test_files_of_other_folders_are_named_the_highest_first(tmp_path: Path) -> None:
    for name in ("a/b/c/pyproject.toml", "ml/Pipfile", ".git/setup.py", "a/b/c/d/e/setup.py", "env/lib/setup.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")

    with pytest.raises(InputError, match="has no file with requirements") as raised:
        read_project(tmp_path)

    assert raised.value.hint.endswith("there are `ml/Pipfile`, `a/b/c/pyproject.toml`")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", "[project]\nname = 'p'\nversion = '1'\ndependencies = ['numpy<3']\n"),
        ("Pipfile", "[packages]\nnumpy = '<3'\n"),
        ("setup.py", "from setuptools import setup\nsetup(name='p', install_requires=['numpy<3'])\n"),
        ("environment.yml", "dependencies:\n  - numpy<3\n"),
        ("pixi.toml", "[pypi-dependencies]\nnumpy = '<3'\n"),
        ("a.txt", "numpy<3\n"),
    ],
)
def test_any_file_with_requirements_can_be_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "part").mkdir()
    path = write(tmp_path / "part", name, text)

    project = read_project(tmp_path, requirements=[path])

    assert [str(root.requirement) for root in project.roots] == ["numpy<3"]
