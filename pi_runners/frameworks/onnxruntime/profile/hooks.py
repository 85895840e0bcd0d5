"""Steps of ONNX Runtime: runs of a session. Sessions are profiled from their creation on."""

import glob
import weakref
from typing import Any, List

from ....profile.hooks.session import Profiler, Session

_RUN = 1


class OnnxruntimeProfiler(Profiler):
    """The profiles of all sessions."""

    framework = "onnxruntime"

    def __init__(self, prefix: str, sessions: List[Any]) -> None:
        self._prefix = prefix
        self._sessions = sessions

    def start(self, result: Any) -> None:
        """Do nothing: sessions are profiled from their creation on."""

    def stop(self, result: Any) -> List[str]:
        """End the profiles, and return their files."""
        for reference in self._sessions:
            session = reference()
            if session is not None:
                session.end_profiling()
        return sorted(glob.glob(glob.escape(self._prefix) + "*.json"))


def install(onnxruntime: Any, session: Session) -> None:
    """Profile sessions, and count their runs."""
    inference_session = onnxruntime.InferenceSession
    prefix = session.path("onnxruntime")
    sessions: List[Any] = []
    construct = inference_session.__init__

    def construct_profiled(
        self: Any, path_or_bytes: Any, sess_options: Any = None, *arguments: Any, **named: Any
    ) -> None:
        if session.is_active():
            sess_options = sess_options or onnxruntime.SessionOptions()
            sess_options.enable_profiling = True
            sess_options.profile_file_prefix = "{}-{}".format(prefix, len(sessions))
            sessions.append(weakref.ref(self))
        construct(self, path_or_bytes, sess_options, *arguments, **named)

    inference_session.__init__ = construct_profiled
    for name in ("run", "run_with_iobinding"):
        setattr(inference_session, name, _counted(getattr(inference_session, name), session, prefix, sessions))


def _counted(method: Any, session: Session, prefix: str, sessions: List[Any]) -> Any:
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        result = method(self, *arguments, **named)
        session.end_step(_RUN, id(self), lambda: OnnxruntimeProfiler(prefix, sessions))
        return result

    return call
