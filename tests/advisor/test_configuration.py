from __future__ import annotations

from pathlib import Path

import pytest

from advisor.index.configuration import IndexConfiguration, _pip_files, read_configuration, without_credentials
from knowledge.domain.errors import InputError


def read(tmp_path: Path, variables: dict[str, str] | None = None) -> IndexConfiguration:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    unset = {"XDG_CONFIG_DIRS": str(tmp_path / "none"), "XDG_CONFIG_HOME": str(home / ".config")}
    return read_configuration(tmp_path, environment={**unset, **(variables or {})}, home=home)


def test_pip_variables_are_read(tmp_path: Path) -> None:
    configuration = read(
        tmp_path,
        {"PIP_INDEX_URL": "https://a/simple", "PIP_EXTRA_INDEX_URL": "https://b https://c", "PIP_DEFAULT_TIMEOUT": "7"},
    )

    assert configuration.default == "https://a/simple"
    assert configuration.extra == ("https://b", "https://c")
    assert configuration.timeout_seconds == 7


def test_uv_variables_override_pip_variables(tmp_path: Path) -> None:
    configuration = read(
        tmp_path, {"PIP_INDEX_URL": "https://a", "UV_DEFAULT_INDEX": "mine=https://u", "UV_INDEX": "x=https://e"}
    )

    assert (configuration.default, configuration.extra) == ("https://u", ("https://e",))


def test_the_users_pip_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "home" / ".config" / "pip" / "pip.conf"
    path.parent.mkdir(parents=True)
    path.write_text("[global]\nindex-url = https://file/simple\nfind-links =\n    /one\n    /two\n")

    configuration = read(tmp_path)

    assert (configuration.default, configuration.find_links) == ("https://file/simple", ("/one", "/two"))


def test_the_projects_uv_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.uv.index]]\nurl = "https://d"\ndefault = true\n'
        '[[tool.uv.index]]\nurl = "https://e"\n[[tool.uv.index]]\nurl = "https://x"\nexplicit = true\n'
    )

    configuration = read(tmp_path)

    assert (configuration.default, configuration.extra) == ("https://d", ("https://e",))


def test_the_error_of_an_unreadable_file_names_it(tmp_path: Path) -> None:
    (tmp_path / "uv.toml").write_text("index-url = ")

    with pytest.raises(InputError, match="uv.toml` is not valid TOML"):
        read(tmp_path)


def test_credentials_are_never_shown() -> None:
    assert without_credentials("https://me:secret@host/simple/") == "https://host/simple/"


def test_uvs_sources_bind_packages_to_explicit_indexes(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.uv.index]]\nname = "cuda"\nurl = "https://cuda/simple"\nexplicit = true\n'
        '[tool.uv.sources]\nTorch = { index = "cuda" }\nother = { git = "https://git/x" }\n'
    )

    configuration = read(tmp_path, {"UV_INDEX_STRATEGY": "unsafe-best-match"})

    assert (configuration.bindings, configuration.extra, configuration.strategy) == (
        {"torch": "https://cuda/simple"},
        (),
        "unsafe-best-match",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[tool.uv.sources]\ntorch = { index = "none" }\n', "uses the index `none`, which is not defined"),
        ('[tool.uv]\nindex-strategy = "any"\n', "there is no index strategy `any`"),
    ],
)
def test_the_error_of_a_wrong_index_table_names_it(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)

    with pytest.raises(InputError, match=message):
        read(tmp_path)


@pytest.mark.usefixtures("no_user_configuration")
def test_without_any_configuration_the_default_index_is_that_of_pip(tmp_path: Path) -> None:
    pip = pytest.importorskip("pip._internal.models.index", reason="pip is not installed")

    configuration = read(tmp_path)

    assert (configuration.default, configuration.extra, configuration.find_links) == ("", (), ())
    assert configuration.certificate is None
    assert configuration.default_url.rstrip("/") == pip.PyPI.simple_url.rstrip("/")


def test_certificates_come_from_the_variables_of_uv_or_pip(tmp_path: Path) -> None:
    assert read(tmp_path, {"SSL_CERT_FILE": "/uv.pem", "PIP_CERT": "/pip.pem"}).certificate == "/uv.pem"
    assert read(tmp_path, {"PIP_CERT": "/pip.pem"}).certificate == "/pip.pem"


@pytest.mark.usefixtures("no_user_configuration")
def test_tables_of_uv_can_be_ignored(tmp_path: Path) -> None:
    (tmp_path / "uv.toml").write_text('index-url = "https://uv/simple"\n')

    assert read(tmp_path).default == "https://uv/simple"
    assert read(tmp_path, {"UV_NO_CONFIG": "1"}).default == ""


def test_the_users_pip_file_overrides_the_systems(tmp_path: Path) -> None:
    system, user = tmp_path / "system", tmp_path / "user"
    for folder, name in ((system, "system"), (user, "user")):
        (folder / "pip").mkdir(parents=True)
        (folder / "pip" / "pip.conf").write_text(f"[global]\nindex-url = https://{name}/simple\n")
    variables = {"XDG_CONFIG_DIRS": f"{tmp_path / 'none'}:{system}", "XDG_CONFIG_HOME": str(user)}

    assert read(tmp_path, variables).default == "https://user/simple"
    # This machine's own file, if it exists, is between the two.
    assert list(_pip_files(variables, tmp_path))[:3] == [
        tmp_path / "none" / "pip" / "pip.conf",
        system / "pip" / "pip.conf",
        Path("/etc/pip.conf"),
    ]
