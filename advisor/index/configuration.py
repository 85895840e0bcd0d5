"""Reads the index configuration of pip and uv.

An `InputError` is raised for a file that cannot be read, and an address or an option that is malformed.
"""

from __future__ import annotations

import configparser
import netrc
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from packaging.utils import canonicalize_name

from knowledge.domain.documents import parse_toml
from knowledge.domain.errors import InputError

KEYS = ("index-url", "extra-index-url", "find-links", "cert", "timeout")
STRATEGIES = ("first-index", "unsafe-best-match")
_UV_VARIABLES = {"index-strategy": "UV_INDEX_STRATEGY", "cert": "SSL_CERT_FILE", "timeout": "UV_HTTP_TIMEOUT"}
PYPI = "https://pypi.org/simple/"
"""The index that pip and uv use if none is configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexConfiguration:
    """Indexes and how to access them.

    Attributes:
        default: Base address of the default index's simple API; empty for PyPI.
        extra: Base addresses of further indexes, searched before the default one.
        supplemental: Base addresses of indexes that are searched for what no other index has.
        find_links: Directories with distributions (paths or ``file:`` addresses), and pages with links to such files.
        bindings: By package, the base address of the only index that it comes from.
        builds: By package, the base addresses of indexes with further builds of it. Nothing else is taken from them.
        exclusive: Those of them that come from no other index.
        strategy: ``first-index``: a package comes only from the first index that has it; ``unsafe-best-match``: all
            indexes are searched for every package, as pip does, so that any of them can provide any package.
        certificate: File of trusted certificate authorities; `None` for the built-in ones.
        timeout_seconds: Maximum wait for one answer.
    """

    default: str = ""
    extra: tuple[str, ...] = ()
    supplemental: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    bindings: Mapping[str, str] = field(default_factory=dict)
    builds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclusive: frozenset[str] = frozenset()
    strategy: str = STRATEGIES[0]
    certificate: str | None = None
    timeout_seconds: float = 30.0

    @property
    def default_url(self) -> str:
        """Address of the default index; if none is configured, PyPI, as for pip."""
        return self.default or PYPI

    def has_builds_of(self, name: str, base: str) -> bool:
        """Whether an index is one that only further builds of a package are taken from."""
        return base in self.builds.get(name, ())

    def name_of(self, base: str) -> str:
        """Return a short name of an index for stacks: empty for the default index, else its host, else ``local``."""
        if base == self.default_url:
            return ""
        return urlsplit(base).hostname or "local"


def without_credentials(url: str) -> str:
    """Return an address without user name and password."""
    try:
        parts = urlsplit(url)
    except ValueError:  # Not a valid address, but messages may contain it.
        return re.sub(r"//[^/]*@", "//", url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rsplit("@", 1)[1]))


Credentials = Mapping[str, tuple[str, str]]
"""User name and password by origin (:func:`origin_of`)."""

_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> str:
    """Return scheme, host and port of an address; credentials are valid for one origin (RFC 6454).

    Raises:
        ValueError: If the port is not a number.
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}:{parts.port or _PORTS.get(parts.scheme, 0)}"


def split_credentials(configuration: IndexConfiguration) -> tuple[IndexConfiguration, Credentials]:
    """Remove the credentials from the addresses of a configuration, so that no lock, report or cache contains them.

    If the address of an HTTPS index has no credentials, the user's ``.netrc`` may have them for its host. They are not
    used over HTTP, because that file contains neither scheme nor port. Its ``default`` entry is not used.
    """
    machines = _netrc()
    credentials: dict[str, tuple[str, str]] = {}

    def clean(url: str) -> str:
        try:
            parts = urlsplit(url)
            origin = origin_of(url) if parts.scheme in _PORTS else ""
        except ValueError as error:
            raise InputError(f"the index address `{without_credentials(url)}` is malformed: {error}") from None
        if origin and parts.username:
            credentials[origin] = (unquote(parts.username), unquote(parts.password or ""))
        elif parts.scheme == "https" and (credential := machines.get(parts.hostname or "")):
            credentials.setdefault(origin, credential)
        return without_credentials(url)

    plain = replace(
        configuration,
        default=clean(configuration.default),
        extra=tuple(map(clean, configuration.extra)),
        supplemental=tuple(map(clean, configuration.supplemental)),
        bindings={name: clean(url) for name, url in configuration.bindings.items()},
        find_links=tuple(map(clean, configuration.find_links)),
        builds={name: tuple(map(clean, urls)) for name, urls in configuration.builds.items()},
    )
    return plain, credentials


def _netrc() -> Mapping[str, tuple[str, str]]:
    """Return user names and passwords by host; empty if the file is absent or unreadable, as in pip."""
    try:
        path = Path(os.environ["NETRC"]) if "NETRC" in os.environ else Path.home() / ".netrc"
        hosts = netrc.netrc(path).hosts
    except (OSError, RuntimeError, ValueError, netrc.NetrcParseError):
        return {}
    # The third field of an entry, the account, is for FTP.
    return {host: (user, word or "") for host, (user, _, word) in hosts.items() if user and host != "default"}


def read_configuration(
    directory: Path, *, environment: Mapping[str, str] | None = None, home: Path | None = None
) -> IndexConfiguration:
    """Read the index configuration of pip and uv.

    The first of these that sets a key determines its value: environment variables of uv, those of pip, the uv tables
    of the project, ``uv.toml`` of the user and of the system, configuration files of pip.

    Args:
        directory: The project's directory.
        environment: Environment variables; the process's own by default.
        home: The user's home directory; the real one by default.
    """
    variables = os.environ if environment is None else environment
    if home is None:
        # Without a home directory, `~` is not expanded, and could be a directory of the project.
        home = Path(os.path.expanduser("~"))
        home = home if home.is_absolute() else Path(os.devnull)
    values: dict[str, Any] = {}
    for layer in _layers(directory, variables, home):
        for key, value in layer.items():
            values.setdefault(key, value)
    configuration = IndexConfiguration(
        default=values.get("index-url", ""),
        extra=tuple(values.get("extra-index-url", ())),
        find_links=tuple(values.get("find-links", ())),
        bindings=values.get("bindings", {}),
        strategy=check_strategy(values.get("index-strategy", STRATEGIES[0])),
        certificate=values.get("cert"),
    )
    if timeout := values.get("timeout"):
        try:
            configuration = replace(configuration, timeout_seconds=float(timeout))
        except ValueError:
            raise InputError(f"the index timeout `{timeout}` is not a number of seconds") from None
    return configuration


def _layers(directory: Path, variables: Mapping[str, str], home: Path) -> Iterator[dict[str, Any]]:
    yield _uv_variables(variables)
    yield _normal({k: v for k in KEYS if (v := variables.get("PIP_" + k.upper().replace("-", "_")))})
    if "PIP_DEFAULT_TIMEOUT" in variables:
        yield {"timeout": variables["PIP_DEFAULT_TIMEOUT"]}
    if not variables.get("UV_NO_CONFIG"):
        yield _uv_file(directory / "pyproject.toml", "tool", "uv")
        config_home = Path(variables.get("XDG_CONFIG_HOME") or home / ".config")
        for path in (directory / "uv.toml", config_home / "uv" / "uv.toml", Path("/etc/uv/uv.toml")):
            yield _uv_file(path)
    yield from map(_pip_file, reversed(list(_pip_files(variables, home))))


def _uv_variables(variables: Mapping[str, str]) -> dict[str, Any]:
    layer: dict[str, Any] = {key: value for key, name in _UV_VARIABLES.items() if (value := variables.get(name))}
    if default := variables.get("UV_DEFAULT_INDEX") or variables.get("UV_INDEX_URL"):
        layer["index-url"] = _address_of(default)
    if extra := variables.get("UV_INDEX") or variables.get("UV_EXTRA_INDEX_URL"):
        layer["extra-index-url"] = tuple(_address_of(word) for word in extra.split())
    if links := variables.get("UV_FIND_LINKS"):
        layer["find-links"] = tuple(links.replace(",", " ").split())
    return layer


def _address_of(index: str) -> str:
    """Return the address of an index in uv's form ``name=address``."""
    name, separator, url = index.partition("=")
    return url if separator and "/" not in name else index


def _uv_file(path: Path, *keys: str) -> dict[str, Any]:
    """Read the uv settings in a file, or in a table of it."""
    table: Any = _read_toml(path)
    try:
        for key in keys:
            table = table.get(key, {})
        return _uv_table(table)
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"`{path}`: the uv settings have a value of the wrong type: {error}") from None


def _uv_table(table: Mapping[str, Any]) -> dict[str, Any]:
    keys = (*KEYS, "index-strategy")
    table = {**table, **{k: v for k, v in table.get("pip", {}).items() if k in keys}}
    layer = {key: table[key] for key in keys if key in table}
    extra = []
    for index in table.get("index", ()):
        if index.get("default"):
            layer["index-url"] = index.get("url", "")
        elif not index.get("explicit"):
            extra.append(index.get("url", ""))
    if extra:
        layer["extra-index-url"] = tuple(extra)
    if bindings := _uv_bindings(table):
        return {**_normal(layer), "bindings": bindings}
    return _normal(layer)


def _uv_bindings(table: Mapping[str, Any]) -> dict[str, str]:
    """Return the index of each package in ``[tool.uv.sources]``; sources with markers are ignored."""
    url_by_name = {index.get("name"): index.get("url", "") for index in table.get("index", ())}
    bindings: dict[str, str] = {}
    for package, source in table.get("sources", {}).items():
        if isinstance(source, dict) and "index" in source and "marker" not in source:
            if source["index"] not in url_by_name:
                raise InputError(
                    f"`tool.uv.sources.{package}` uses the index `{source['index']}`, which is not defined"
                )
            bindings[canonicalize_name(package)] = str(url_by_name[source["index"]])
    return bindings


def check_strategy(name: str) -> str:
    """Return the strategy for the name of a strategy in uv."""
    # The third strategy of uv differs from the second only in its search order.
    supported = {**dict.fromkeys(STRATEGIES), "unsafe-first-match": None}
    if name not in supported:
        raise InputError(f"there is no index strategy `{name}`", hint=f"choose one of {', '.join(STRATEGIES)}")
    return STRATEGIES[0] if name == STRATEGIES[0] else STRATEGIES[1]


def _pip_files(variables: Mapping[str, str], home: Path) -> Iterator[Path]:
    """Yield the configuration files of pip; a later file overrides an earlier one."""
    for folder in (variables.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    yield home / ".pip" / "pip.conf"
    yield Path(variables.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if configured := variables.get("PIP_CONFIG_FILE"):
        yield Path(configured)


def _pip_file(path: Path) -> dict[str, Any]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except OSError:
        return {}
    except (configparser.Error, UnicodeDecodeError) as error:
        raise InputError(f"the pip configuration `{path}` cannot be read: {' '.join(str(error).split())}") from None
    options = ((section, key) for section in ("global", "install") for key in KEYS)
    return _normal({key: parser.get(section, key) for section, key in options if parser.has_option(section, key)})


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except OSError:
        return {}
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{path}` is not valid TOML: {error}") from None


def _normal(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Convert lists to tuples; pip writes them as words."""
    return {
        key: tuple(value.split() if isinstance(value, str) else value)
        if key in ("extra-index-url", "find-links")
        else str(value)
        for key, value in layer.items()
    }
