"""What an advice is computed from, and a remembered one compared with; loads neither the solver nor the catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from advisor.api.context import (
    AdviceInputs,
    load_project,
    open_predictor,
    prepare_target,
    project_builder,
    read_current_lock,
    select_targets,
)
from advisor.api.indexes import open_indexes
from advisor.api.options import ProjectOptions
from advisor.index.client import IndexClient


@contextmanager
def open_inputs(options: ProjectOptions) -> Iterator[tuple[AdviceInputs, ...]]:
    """Read a project and open its indexes and predictions for each of its targets, or for the named ones.

    Raises:
        InputError: If a file or an option is wrong.
        KnowledgeBaseError: If the knowledge base cannot be opened.
    """
    project = load_project(options.files, build=project_builder(options))
    contexts = [prepare_target(options, project, table) for table in select_targets(options.target, project)]
    with ExitStack() as stack:
        # Targets whose packages come from the same indexes share a client.
        clients: dict[str, IndexClient] = {}
        inputs: list[AdviceInputs] = []
        for context in contexts:
            hardware = context.target.build_machine
            key = repr((sorted(context.project.bindings.items()), hardware.identity))
            if key not in clients:
                clients[key] = stack.enter_context(
                    open_indexes(options.indexes, options.files.directory, context.project, [hardware])
                )
            client = clients[key]
            if context.other_pythons:
                from advisor.api.search import with_supported_python

                context = with_supported_python(context, client)
            estimator = stack.enter_context(open_predictor(context, client))
            current = read_current_lock(context)
            inputs.append(AdviceInputs(context=context, client=client, estimator=estimator, current=current))
        yield tuple(inputs)
