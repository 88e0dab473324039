"""A plug-in for pytest that prints each failure with its reason at once: a run that is killed prints no summary.

Lines have the form of the summary, which ``-rN`` leaves out, so that each failure is listed once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter


class _Printer:
    def __init__(self, terminal: TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)  # after the result's own line
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = str(crash.message if crash is not None else report.longrepr).strip()
            first = reason.splitlines()[0] if reason else "no reason was given"
            what = "FAILED" if report.when == "call" else "ERROR"
            self._terminal.write_line(f"{what} {report.nodeid} - {first}")


@pytest.hookimpl(trylast=True)  # after the terminal's reporter exists
def pytest_configure(config: pytest.Config) -> None:
    """Print from the process that reports, not from xdist's workers."""
    terminal = config.pluginmanager.getplugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Printer(terminal), "at_once_printer")
