"""The gate's findings as JUnit XML: a suite for each target, a case for each code.

Source: https://github.com/testmoapp/junitxml
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from advisor.gate.check import GateResult, TargetResult
from advisor.gate.findings import Finding, gate_codes
from advisor.project.text_file import UnreadableFileError
from advisor.report.formats import Presentation

SUFFIX = ".xml"


def render(result: GateResult, _: Presentation) -> str:
    """Return the findings as test suites; errors are failures, others are in the output of their case."""
    root = ElementTree.Element("testsuites", name="advisor check")
    for target_result in result.targets:
        root.append(_suite(target_result, result))
    if result.unreadable is not None:
        root.append(_unreadable_suite(result.findings, result.unreadable))
    for key in ("tests", "failures", "errors"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode")


def _suite(target_result: TargetResult, result: GateResult) -> ElementTree.Element:
    name = target_result.case.name or target_result.case.head.problem.target.hardware.name
    suite = ElementTree.Element("testsuite", name=name)
    failed = 0
    for code, about in gate_codes().items():
        case = ElementTree.SubElement(suite, "testcase", classname=f"advisor.{name}", name=f"{code} {about.name}")
        of_target = [f for f in result.findings if not f.targets or target_result.case.name in f.targets]
        failing, others = ([f for f in of_target if f.code == code and f.fails is fails] for fails in (True, False))
        if failing:
            failed += 1
            failure = ElementTree.SubElement(case, "failure", message=_legal(failing[0].message), type=code)
            failure.text = "\n".join(map(_line, failing))
        if others:
            ElementTree.SubElement(case, "system-out").text = "\n".join(map(_line, others))
    if (error := target_result.failure) is not None:
        case = ElementTree.SubElement(suite, "testcase", classname=f"advisor.{name}", name="check")
        ElementTree.SubElement(case, "error", message=_legal(error.message), type=error.code).text = error.hint
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(failed))
    suite.set("errors", str(int(error is not None)))
    return suite


def _unreadable_suite(findings: Sequence[Finding], error: UnreadableFileError) -> ElementTree.Element:
    """Return the suite of a file that cannot be read: nothing else was checked."""
    suite = ElementTree.Element("testsuite", name="advisor", tests="1", failures="0", errors="1")
    name = f"{findings[0].code} {gate_codes()[findings[0].code].name}"
    case = ElementTree.SubElement(suite, "testcase", classname="advisor", name=name)
    element = ElementTree.SubElement(case, "error", message=_legal(error.message), type=error.code)
    element.text = "\n".join(map(_line, findings))
    return suite


def _line(finding: Finding) -> str:
    place = f"{finding.place}: " if finding.place.path else ""
    return _legal(f"{place}{finding.level}: {finding.message}")


def _legal(text: str) -> str:
    """Return a text without characters that XML does not allow."""
    return "".join(c for c in text if c in "\t\n\r" or c >= " ")
