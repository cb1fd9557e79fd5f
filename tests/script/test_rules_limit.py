"""The time limit of a script is not that of the rules that look at it: what is known stays known."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.commands.check.targets import CheckOptions
from memlint.commands.exit_status import exit_status
from memlint.commands.run.run import run
from memlint.lint import rule
from memlint.targets.script import Script
from tests.script.running import write

HEADINGS = "\n\n".join(f"    ## {heading}\n\n    It says so." for heading in rule.HEADINGS)

SLOW_RULE = f"""
import time
from memlint.lint.rule import TraceRule, Severity

class Early(TraceRule):
    \"\"\"Says something at once.

{HEADINGS}
    \"\"\"
    code = "USR100"
    name = "early"
    severity = Severity.INFO
    def check(self, context):
        time.sleep(2)
        yield self.finding(context, None, "seen", nbytes=0, peak_change=0, fix="")

class Slow(TraceRule):
    \"\"\"Takes for ever.

{HEADINGS}
    \"\"\"
    code = "USR200"
    name = "slow"
    severity = Severity.INFO
    def check(self, context):
        time.sleep(10 ** 6)
        return ()
"""

LINE_OF_SLEEP = SLOW_RULE[: SLOW_RULE.index("10 ** 6")].count("\n") + 1

TRAINING = """
import torch
model = torch.nn.Linear({size}, {size}, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(4, {size}, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow  # waits for the limit of the rules
@pytest.mark.parametrize(("size", "status"), [(512, 0), (200_000, 1)])
def test_rules_that_take_too_long_leave_the_verdict_with_its_status(tmp_path: Path, size: int, status: int) -> None:
    (tmp_path / "slow_rules.py").write_text(SLOW_RULE)
    file = write(tmp_path, TRAINING.format(size=size))
    (tmp_path / "memlint.toml").write_text('rule-paths = ["slow_rules.py"]\n')
    settings = {"select": ("USR100", "USR200"), "timeout": 25.0}
    options = CheckOptions(cache=False, timeline=True)
    report = run(Script(name="train", path=str(file)), settings, options).report
    (workload,) = report.workloads
    assert workload.error is None
    assert workload.verdict is not None
    assert workload.verdict.outcome == ("does not fit" if status else "fits")
    assert workload.timeline is not None
    assert exit_status(report) == status
    (skipped,) = report.skipped
    own = "the rules were not through: the project's own rules took more than 25 s, at "
    assert skipped.reason.startswith(own), skipped.reason
    assert f"slow_rules.py:{LINE_OF_SLEEP} in check" in skipped.reason
    assert skipped.reason.endswith("findings of USR200 may be missing")
    assert [finding.code for finding in report.findings] == ["USR100"]
    assert "--time-limit" in skipped.hint
