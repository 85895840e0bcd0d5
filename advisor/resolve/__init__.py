"""Resolution of requirements to the best stack.

- :mod:`~advisor.resolve.candidates`: the problem, and the versions that a target can install.
- :mod:`~advisor.resolve.score`: what stacks are compared by, as whole-number costs (``StackScore``).
- :mod:`~advisor.resolve.optimum`: ``solve`` returns the best stack of a ``ResolutionRequest`` (problem, candidates and
  score) with its proof; the stack of a plain resolver.
- :mod:`~advisor.resolve.explanation`: reasons, findings, prices and conflicts.
- :mod:`~advisor.resolve.recommendation`: the ``Advice``, also of several ways to state a problem, and several targets.
"""
