"""Steps of PyTorch: of the first optimizer, or calls of the outermost module if there is no optimizer."""

import sys
from typing import Any, List

from ....profile.hooks.session import Profiler, Session

_CALL, _OPTIMIZER = 1, 2


class TorchProfiler(Profiler):
    """torch.profiler with shapes. Its first step is a warm-up of the profiler itself."""

    framework = "torch"

    def __init__(self, session: Session) -> None:
        import torch

        self._session = session
        self._path = session.path("torch") + ".json"
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profile = torch.profiler.profile(activities=activities, record_shapes=True)

    def start(self, result: Any) -> None:
        """Start, and begin the first step."""
        import torch

        self._profile.start()
        self._number = 0
        self._mark = torch.profiler.record_function("ProfilerStep#0")
        self._mark.__enter__()

    def step(self) -> None:
        """End a step, and begin the next one."""
        import torch

        self._synchronise()
        self._mark.__exit__(None, None, None)
        self._number += 1
        self._mark = torch.profiler.record_function("ProfilerStep#{}".format(self._number))
        self._mark.__enter__()

    def stop(self, result: Any) -> List[str]:
        """End the last step, and write the trace."""
        self._synchronise()
        self._mark.__exit__(None, None, None)
        self._profile.stop()
        self._profile.export_chrome_trace(self._path)
        return [self._path]

    @staticmethod
    def _synchronise() -> None:
        import torch

        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()


def install(torch: Any, session: Session) -> None:
    """Count the steps of optimizers and modules."""
    has_optimizer = []

    def make() -> Profiler:
        return TorchProfiler(session)

    def after_step(optimizer: Any, *_: Any) -> None:
        session.end_step(_OPTIMIZER, id(optimizer), make)

    register = getattr(sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
    if register is not None:
        register(after_step)
        construct = torch.optim.Optimizer.__init__

        def construct_recorded(self: Any, *arguments: Any, **named: Any) -> None:
            has_optimizer.append(True)
            del has_optimizer[1:]
            construct(self, *arguments, **named)

        torch.optim.Optimizer.__init__ = construct_recorded
    _count_calls(torch, session, has_optimizer, make)


def _count_calls(torch: Any, session: Session, has_optimizer: List[bool], make: Any) -> None:
    """Count the calls of the first module with parameters that is called: the outermost one."""
    disable = getattr(getattr(torch, "compiler", None), "disable", None) or (lambda function: function)

    @disable  # type: ignore[untyped-decorator]
    def after_call(module: Any, inputs: Any, output: Any) -> None:
        if not has_optimizer:
            session.end_step(_CALL, "module", make)

    def before_call(module: Any, inputs: Any) -> None:
        if next(module.parameters(), None) is not None:
            handle.remove()
            if not has_optimizer:
                module.register_forward_hook(after_call)

    handle = torch.nn.modules.module.register_module_forward_pre_hook(before_call)
