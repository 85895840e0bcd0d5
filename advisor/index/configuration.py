"""Which indexes pip and uv are configured to use."""

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

from knowledge.domain.errors import InputError
from knowledge.domain.toml import parse_toml

KEYS = ("index-url", "extra-index-url", "find-links", "cert", "timeout")
STRATEGIES = ("first-index", "unsafe-best-match")
PYPI = "https://pypi.org/simple/"
"""The index that pip and uv use if none is configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexConfiguration:
    """Where candidates come from.

    Attributes:
        default: Base address of the default index's simple API; empty for the field's default index.
        extra: Base addresses of further indexes, searched before the default one.
        find_links: Directories (paths or ``file:`` addresses) that hold distributions.
        bindings: By package, the base address of the one index that it comes from.
        strategy: ``first-index``: the first index that knows a package is the only one; ``unsafe-best-match``: all are
            searched for every package (as pip does), so that any of them can supply any package.
        certificate: File of trusted certificate authorities, or none for the built-in ones.
        timeout_seconds: Longest wait for one answer.
    """

    default: str = ""
    extra: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    bindings: Mapping[str, str] = field(default_factory=dict)
    strategy: str = STRATEGIES[0]
    certificate: str | None = None
    timeout_seconds: float = 30.0

    @property
    def default_url(self) -> str:
        """Address of the default index; where nothing is configured, the one that pip uses."""
        if self.default:
            return self.default
        return PYPI

    def name_of(self, base: str) -> str:
        """Short name of an index for stacks: empty for the default one, else its host, else ``local``."""
        if base == self.default_url:
            return ""
        return urlsplit(base).hostname or "local"


def without_credentials(url: str) -> str:
    """Return an address with user name and password removed."""
    try:
        parts = urlsplit(url)
    except ValueError:  # Not an address: a message may still show it.
        return re.sub(r"//[^/]*@", "//", url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rsplit("@", 1)[1]))


Credentials = Mapping[str, tuple[str, str]]
"""User name and password by origin (:func:`origin_of`)."""

_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> str:
    """Return scheme, host and port of an address, which is what credentials are bound to (RFC 6454).

    Raises:
        ValueError: If the port is not a number.
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}:{parts.port or _PORTS.get(parts.scheme, 0)}"


def split_credentials(
    configuration: IndexConfiguration, environment: Mapping[str, str] | None = None
) -> tuple[IndexConfiguration, Credentials]:
    """Take the credentials out of a configuration's addresses, so that no lock, report or cache can hold them.

    An index whose address has none takes those that the user's ``.netrc`` has for its host, over HTTPS only: that file
    names neither scheme nor port. Its ``default`` entry is not used.

    Args:
        configuration: The configuration.
        environment: Environment variables; the process's own by default.

    Raises:
        InputError: If an address is malformed.
    """
    urls = (configuration.default, *configuration.extra, *configuration.bindings.values())
    machines = _netrc(os.environ if environment is None else environment)
    credentials: dict[str, tuple[str, str]] = {}
    for url in urls:
        try:
            parts = urlsplit(url)
            if parts.scheme not in _PORTS:
                continue
            origin = origin_of(url)
        except ValueError as error:
            raise InputError(f"the index address `{without_credentials(url)}` is malformed: {error}") from None
        if parts.username:
            credentials[origin] = (unquote(parts.username), unquote(parts.password or ""))
        elif parts.scheme == "https" and (known := machines.get(parts.hostname or "")):
            credentials.setdefault(origin, known)
    apart = replace(
        configuration,
        default=without_credentials(configuration.default),
        extra=tuple(without_credentials(url) for url in configuration.extra),
        bindings={name: without_credentials(url) for name, url in configuration.bindings.items()},
    )
    return apart, credentials


def _netrc(variables: Mapping[str, str]) -> Mapping[str, tuple[str, str]]:
    """Return user names and passwords by host; nothing where the file is absent or unreadable, as pip."""
    try:
        path = Path(variables["NETRC"]) if "NETRC" in variables else Path.home() / ".netrc"
        hosts = netrc.netrc(path).hosts
    except (OSError, RuntimeError, ValueError, netrc.NetrcParseError):
        return {}
    # The third field of an entry, the account, is for FTP.
    return {host: (user, word or "") for host, (user, _, word) in hosts.items() if user and host != "default"}


def read_configuration(
    directory: Path, *, environment: Mapping[str, str] | None = None, home: Path | None = None
) -> IndexConfiguration:
    """Read the index configuration of pip and uv.

    For every key the first layer that sets it wins: uv's environment variables, pip's, the project's uv tables,
    the user's and the system's ``uv.toml``, pip's configuration files.

    Args:
        directory: The project's directory.
        environment: Environment variables; the process's own by default.
        home: The user's home directory; the real one by default.

    Raises:
        InputError: If a configuration file cannot be read.
    """
    variables = os.environ if environment is None else environment
    if home is None:
        # A user may have no home; then nothing is looked for below `~`, which could be a directory of the project.
        home = Path(os.path.expanduser("~"))
        home = home if home.is_absolute() else Path(os.devnull)
    found: dict[str, Any] = {}
    for layer in _layers(directory, variables, home):
        for key, value in layer.items():
            found.setdefault(key, value)
    configuration = IndexConfiguration(
        default=found.get("index-url", ""),
        extra=tuple(found.get("extra-index-url", ())),
        find_links=tuple(found.get("find-links", ())),
        bindings=found.get("bindings", {}),
        strategy=check_strategy(found.get("index-strategy", STRATEGIES[0])),
        certificate=found.get("cert"),
    )
    if timeout := found.get("timeout"):
        try:
            configuration = replace(configuration, timeout_seconds=float(timeout))
        except ValueError:
            raise InputError(f"the index time-out `{timeout}` is not a number of seconds") from None
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
    layer: dict[str, Any] = {}
    if default := variables.get("UV_DEFAULT_INDEX") or variables.get("UV_INDEX_URL"):
        layer["index-url"] = _unnamed(default)
    if extra := variables.get("UV_INDEX") or variables.get("UV_EXTRA_INDEX_URL"):
        layer["extra-index-url"] = tuple(_unnamed(word) for word in extra.split())
    if strategy := variables.get("UV_INDEX_STRATEGY"):
        layer["index-strategy"] = strategy
    if links := variables.get("UV_FIND_LINKS"):
        layer["find-links"] = tuple(links.replace(",", " ").split())
    if certificate := variables.get("SSL_CERT_FILE"):
        layer["cert"] = certificate
    if timeout := variables.get("UV_HTTP_TIMEOUT"):
        layer["timeout"] = timeout
    return layer


def _unnamed(index: str) -> str:
    """Drop the name of uv's ``name=address`` form."""
    name, separator, url = index.partition("=")
    return url if separator and "/" not in name else index


def _uv_file(path: Path, *keys: str) -> dict[str, Any]:
    """Read uv's settings from a file, or from a table of it."""
    table: Any = _read_toml(path)
    try:
        for key in keys:
            table = table.get(key, {})
        return _uv_table(table)
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"`{path}`: uv's settings are not shaped as uv reads them: {error}") from None


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
    """Return the packages that ``[tool.uv.sources]`` binds to a named index; sources with markers are left out."""
    named = {index.get("name"): index.get("url", "") for index in table.get("index", ())}
    bindings: dict[str, str] = {}
    for package, source in table.get("sources", {}).items():
        if isinstance(source, dict) and "index" in source and "marker" not in source:
            if source["index"] not in named:
                raise InputError(
                    f"`tool.uv.sources.{package}` names the index `{source['index']}`, which is not defined"
                )
            bindings[canonicalize_name(package)] = str(named[source["index"]])
    return bindings


def check_strategy(name: str) -> str:
    """Return the index strategy of a name.

    Raises:
        InputError: If there is none.
    """
    # uv's third one differs from the second in its search order only.
    known = {**dict.fromkeys(STRATEGIES), "unsafe-first-match": None}
    if name not in known:
        raise InputError(f"there is no index strategy `{name}`", hint=f"take one of {', '.join(STRATEGIES)}")
    return STRATEGIES[0] if name == STRATEGIES[0] else STRATEGIES[1]


def _pip_files(variables: Mapping[str, str], home: Path) -> Iterator[Path]:
    """Yield pip's configuration files, the strongest last."""
    for folder in (variables.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    yield home / ".pip" / "pip.conf"
    yield Path(variables.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if chosen := variables.get("PIP_CONFIG_FILE"):
        yield Path(chosen)


def _pip_file(path: Path) -> dict[str, Any]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except OSError:
        return {}
    except (configparser.Error, UnicodeDecodeError) as error:
        raise InputError(f"the pip configuration `{path}` cannot be read: {' '.join(str(error).split())}") from None
    layer: dict[str, Any] = {}
    for section in ("global", "install"):
        for key in KEYS:
            if parser.has_option(section, key):
                layer[key] = parser.get(section, key)
    return _normal(layer)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except OSError:
        return {}
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{path}` is not valid TOML: {error}") from None


def _normal(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the lists, which pip writes as words, into tuples."""
    return {
        key: tuple(value.split() if isinstance(value, str) else value)
        if key in ("extra-index-url", "find-links")
        else str(value)
        for key, value in layer.items()
    }
