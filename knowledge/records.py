"""Values of typed classes from records of files and answers, checked by pydantic, and the YAML files that ship."""

from __future__ import annotations

import gzip
import importlib.resources
from functools import cache
from importlib.resources.abc import Traversable
from typing import Annotated, Any, TypeVar, cast

_T = TypeVar("_T")


class RecordError(ValueError):
    """Raised for a record that is not a value of its class.

    Attributes:
        place: The field, such as ``cpu.features.0``; empty for the record itself.
        reason: What is wrong with it.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"field `{place}`: {reason}")
        self.place = place
        self.reason = reason


def value_from(kind: type[_T], record: Any, *, discriminator: str = "") -> _T:
    """Return the value of a record.

    Args:
        kind: A dataclass, a model of pydantic, or a union of them.
        record: JSON-ready values, or the content of a JSON document in bytes.
        discriminator: Field that says which member of a union the record describes.

    Raises:
        RecordError: If a field is missing, unknown or of the wrong type.
    """
    # pydantic is slow to import, and many commands read no such record.
    from pydantic import ValidationError

    adapter = _adapter(cast("Any", kind), discriminator)
    try:
        value: _T = adapter.validate_json(record) if isinstance(record, bytes) else adapter.validate_python(record)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise RecordError(".".join(map(str, first["loc"])), first["msg"].lower()) from None
    return value


@cache
def _adapter(kind: Any, discriminator: str) -> Any:
    """Return the parser of a class; its construction is slow."""
    from pydantic import Field, TypeAdapter

    return TypeAdapter(Annotated[kind, Field(discriminator=discriminator)] if discriminator else kind)


@cache
def shipped_yaml(package: str, *names: str, as_text: bool = False) -> dict[str, Any]:
    """Return the content of a file of a package, by the folders in it and the name of the file."""
    text = importlib.resources.files(package).joinpath(*names).read_text(encoding="utf-8")
    return dict(parse_yaml(text, as_text=as_text))


def shipped_text(package: str, name: str) -> str:
    """Return the text of a file of a package that is compressed with gzip."""
    return gzip.decompress((importlib.resources.files(package) / name).read_bytes()).decode()


def yaml_files(folder: Traversable) -> list[Traversable]:
    """Return the YAML files in a folder, ordered by name."""
    return sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)


def parse_yaml(text: str, *, as_text: bool = False) -> Any:
    """Parse a text; with ``as_text``, every scalar is text.

    Raises:
        ValueError: If it is not YAML.
    """
    # PyYAML is slow to import, and many commands read no such file.
    import yaml

    try:
        loader = "BaseLoader" if as_text else "SafeLoader"
        return yaml.load(text, Loader=getattr(yaml, f"C{loader}", getattr(yaml, loader)))
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
