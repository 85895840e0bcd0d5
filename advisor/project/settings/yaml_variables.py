"""Environment variables that YAML files set: workflows, CI pipelines, Compose, Kubernetes, conda environments."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from dataclasses import replace

import yaml

from advisor.project.settings.interface import Variable
from advisor.project.settings.shell_variables import variable_of, variables_of_shell

_ENVIRONMENTS = frozenset({"env", "envs", "environment", "variables", "data"})
"""Keys of variables: `env` (GitHub, Kubernetes), `environment` (Compose), `variables` (GitLab), `data` (ConfigMap)."""
_SCRIPTS = frozenset({"run", "script", "before_script", "after_script"})
"""Keys of scripts, or of lists of scripts."""
_COMMANDS = frozenset({"command", "args", "entrypoint"})
"""Keys of a command, as text or as the list of its words."""
_MOST_NODES = 200_000


def variables_of_yaml(text: str, names: Collection[str]) -> Iterator[Variable]:
    """Yield the variables with some names that a YAML file with any number of documents sets.

    Raises:
        ValueError: If it is not YAML.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        documents = [node for node in yaml.compose_all(text, Loader=loader) if node is not None]
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    pending: list[yaml.Node] = documents[::-1]
    visited: set[int] = set()
    while pending and len(visited) < _MOST_NODES:
        node = pending.pop()
        # An alias is the node that it stands for.
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in _ENVIRONMENTS:
                    yield from (v for v in _of_environment(value) if v.name in names)
                elif isinstance(key, yaml.ScalarNode) and key.value in _SCRIPTS | _COMMANDS:
                    yield from _of_commands(value, names, are_words=key.value in _COMMANDS)
            pending += [value for _, value in reversed(node.value)]
        elif isinstance(node, yaml.SequenceNode):
            pending += reversed(node.value)


def _of_environment(node: yaml.Node) -> Iterator[Variable]:
    """Yield the variables of a mapping, of a list of `NAME=value`, or of a list of mappings with a name and a value."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            text = value if isinstance(value, yaml.ScalarNode) else _entry(value, "value")
            if isinstance(key, yaml.ScalarNode) and text is not None:
                yield replace(variable_of(key.value, text.value), line=_line(text))
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            name, value = _entry(item, "name"), _entry(item, "value")
            if name is not None and value is not None:
                yield replace(variable_of(name.value, value.value), line=_line(value))
            elif isinstance(item, yaml.ScalarNode) and "=" in item.value:
                variable, _, content = item.value.partition("=")
                yield replace(variable_of(variable, content), line=_line(item))


def _entry(node: yaml.Node, key: str) -> yaml.ScalarNode | None:
    """Return the scalar value of a key of a mapping; `None` if the node is something else."""
    for name, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(name, yaml.ScalarNode) and name.value == key and isinstance(value, yaml.ScalarNode):
            return value
    return None


def _of_commands(node: yaml.Node, names: Collection[str], *, are_words: bool) -> Iterator[Variable]:
    """Yield the variables that commands set: a script, a list of scripts, or the words of one command."""
    scalars = [node] if isinstance(node, yaml.ScalarNode) else node.value if isinstance(node, yaml.SequenceNode) else []
    scalars = [scalar for scalar in scalars if isinstance(scalar, yaml.ScalarNode)]
    if are_words and isinstance(node, yaml.SequenceNode):
        words = shlex.join(scalar.value for scalar in scalars)
        yield from (replace(variable, line=_line(node)) for variable in variables_of_shell(words, names))
        return
    for scalar in scalars:
        # The text of a block begins on the line after `|`.
        first = _line(scalar) + (1 if scalar.style in ("|", ">") else 0)
        for variable in variables_of_shell(scalar.value, names):
            yield replace(variable, line=first + variable.line - 1)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
