"""stub"""

from advisor.gate.check import Verdict


def check_html(verdict: Verdict) -> str:
    raise NotImplementedError
