"""What an advice is computed from, and a remembered one compared with; loads neither the solver nor the catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from advisor.api.context import (
    AdviceInputs,
    TargetContext,
    load_project,
    open_predictor,
    prepare_target,
    project_builder,
    read_current_lock,
    select_targets,
)
from advisor.api.indexes import make_client, opened
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
    with open_targets(options, contexts) as inputs:
        yield inputs


@contextmanager
def open_targets(options: ProjectOptions, contexts: Iterable[TargetContext]) -> Iterator[tuple[AdviceInputs, ...]]:
    """Open the indexes and predictions of a project for each of some targets.

    Raises:
        InputError: If an option is wrong.
        KnowledgeBaseError: If the knowledge base cannot be opened.
    """
    with ExitStack() as stack:
        clients: list[IndexClient] = []
        inputs: list[AdviceInputs] = []
        for context in contexts:
            own = make_client(options.indexes, options.files.directory, context.project, [context.target.build_machine])
            # Targets whose packages come from the same indexes share a client.
            client = next((c for c in clients if c.configuration == own.configuration), own)
            if client is own:
                clients.append(stack.enter_context(opened(own)))
            else:
                own.close()
            if context.other_pythons:
                from advisor.api.search import with_supported_python

                context = with_supported_python(context, client)
            estimator = stack.enter_context(open_predictor(context, client))
            current = read_current_lock(context)
            inputs.append(AdviceInputs(context=context, client=client, estimator=estimator, current=current))
        yield tuple(inputs)
