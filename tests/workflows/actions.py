"""Runs the scripts of an action or a workflow as a runner of GitHub Actions would."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


def load(file: str) -> dict[str, Any]:
    """A YAML file of the repository; its key `on` is read as a string, as GitHub does."""
    document = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
    return {"on" if key is True else key: value for key, value in document.items()}


@dataclass
class Action:
    """A composite action in `workspace`, with what its expressions stand for."""

    document: dict[str, Any]
    workspace: Path
    known: dict[str, str]
    log: str = ""
    ran: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, file: str, workspace: Path, **inputs: str) -> Action:
        document = load(file)
        given = {name.replace("_", "-"): value for name, value in inputs.items()}
        assert given.keys() <= document["inputs"].keys()
        known = {f"inputs.{name}": given.get(name, entry["default"]) for name, entry in document["inputs"].items()}
        (workspace / "temp").mkdir(exist_ok=True)
        return cls(document, workspace, {**known, "github.action_path": str(ROOT)})

    def run(self) -> int:
        """Exit status of the first step that fails, else 0; steps that use other actions are noted and left out."""
        for step in self.document["runs"]["steps"]:
            if "if" in step and not self._holds(step["if"]):
                continue
            self.ran.append(step["name"])
            if "run" in step and (status := self._script(step)):
                return status
        return 0

    def file(self, name: str) -> Path:
        return self.workspace / "temp" / name

    def _script(self, step: dict[str, Any]) -> int:
        output = self.file("output")
        output.write_text("")
        environment = {
            **os.environ,
            "RUNNER_TEMP": str(self.workspace / "temp"),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(self.file("summary.md")),
            **{name: self._filled(value) for name, value in step.get("env", {}).items()},
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.workspace / self._filled(step.get("working-directory", ".")),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.log += done.stdout + done.stderr
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            self.known[f"steps.{step['id']}.outputs.{name}"] = value
        return done.returncode

    def _filled(self, text: str) -> str:
        return _EXPRESSION.sub(lambda found: self.known.get(found[1], ""), text)

    def _holds(self, condition: str) -> bool:
        name, _, value = condition.partition(" != ")
        assert value == "''"
        return self.known.get(name, "") != ""
