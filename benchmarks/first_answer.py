"""What a newcomer gets who types `memlint check FILE` in a public repository, and nothing else.

    python benchmarks/first_answer.py CHECKOUTS [--half development|final] [--memlint COMMAND] [-o TABLE.md]

CHECKOUTS has a folder `owner+name` for each repository of `first_answer.txt`. In it the first command is typed for each
file; where the answer is a message that names a command, that is typed next, literally. Prints a table; whether an
answer is right is for a reader to judge.

How the files were chosen, which was written down before: ten fields (image classification, segmentation, detection,
image generation, super-resolution, language, speech, 3D and video, graphs and recommendation, time series and control);
of each three to five of the most starred repositories written for PyTorch that could be fetched and are not among
the fixtures; of each the one or two files that define the model which its training script, or else its README, builds,
the largest where there are more. Every second repository served the development, the others were looked at only at its
end.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

_FILES = Path(__file__).with_suffix(".txt")
_COMMAND = re.compile(
    r"memlint check (?:'[^']*'|\S+)(?: --?[\w-]+(?:=\w+| \d\S*)?)*|memlint run (?:'[^']*'|[^'])+?(?=[.,:;](?:\s|$)|$)"
)
"""The rest of a sentence may follow `memlint check`; a script's arguments are its end."""
_LONGEST = 600


@dataclass(frozen=True)
class Answer:
    """What one command said."""

    command: str
    seconds: float
    outcome: str
    message: str
    next: str
    """The command that the message names; empty without one."""

    @property
    def is_right(self) -> bool:
        """Whether it gave a figure."""
        return not self.message


@click.command()
@click.argument("checkouts", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--half", type=click.Choice(["development", "final", "both"]), default="both")
@click.option("--memlint", "program", default="memlint", help="The command to type in place of memlint.")
@click.option("--only", default="", help="Only repositories or files with this in their name.")
@click.option("--quick", is_flag=True, help="Leave out the table of batch sizes, which takes most of the time.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the table here too.")
@click.option("--reports", type=click.Path(file_okay=False, path_type=Path), help="Keep the JSON reports here.")
def main(
    checkouts: Path, half: str, program: str, only: str, quick: bool, output: Path | None, reports: Path | None
) -> None:
    lines = ["| file | first command: seconds, outcome | second command: seconds, outcome |", "|---|---|---|"]
    first = second = 0
    places = places_of(half)
    words = [*shlex.split(program)], ["--no-sweep"] * quick
    places = [each for each in places if only in " ".join(each)]
    print("\n".join(lines))
    for repository, file in places:
        folder = checkouts / repository.replace("/", "+")
        kept = None if reports is None else reports / f"{folder.name}+{file.replace('/', '+')}"
        answer = _answer(f"memlint check {file}", folder, words, kept)
        later = None
        if answer.message and answer.next and answer.next != answer.command:
            later = _answer(answer.next, folder, words, kept)
        first += answer.is_right
        second += later is not None and later.is_right
        cells = [f"{repository} `{file}`", _cell(answer), "" if later is None else f"`{later.command}`: {_cell(later)}"]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
        print(lines[-1], flush=True)
    lines += ["", f"{first} of {len(places)} at the first command, {second} more at the second."]
    print(lines[-1])
    if output is not None:
        output.write_text("\n".join(lines) + "\n")


def places_of(half: str) -> list[tuple[str, str]]:
    """The repositories and files of a half, or of both."""
    development, final = _FILES.read_text().split("# looked at only at the end")
    text = {"development": development, "final": final, "both": development + final}[half]
    return [(*line.split(),) for line in text.splitlines() if line and not line.startswith("#")]  # type: ignore[misc]


def _answer(command: str, folder: Path, words: tuple[list[str], list[str]], kept: Path | None) -> Answer:
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary, "report.json")
        begin = time.monotonic()
        try:
            done = subprocess.run(
                [*words[0], *_with_options(shlex.split(command)[1:], ["--output-format=json", f"-o{place}"], words[1])],
                check=False, cwd=folder, capture_output=True, text=True, timeout=_LONGEST, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Answer(command, _LONGEST, "no answer", "no answer in time", "")
        seconds = time.monotonic() - begin
        if not place.exists():
            text = " ".join((done.stderr or done.stdout).split())
            return Answer(command, seconds, "failed", text or "nothing", _next(text))
        report = json.loads(place.read_text())
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.with_name(f"{kept.name}{'.second' * (kept.with_name(kept.name + '.json').exists())}.json").write_text(
                place.read_text()
            )
    return _read(report, command, seconds)


def _with_options(command: list[str], both: list[str], check: list[str]) -> list[str]:
    """Put memlint's own options behind `check` or `run`: what follows a script is the script's."""
    own = [*both, "--no-cache", *check] if command[0] == "check" else both
    return [command[0], *own, *command[1:]]


def _read(report: dict[str, Any], command: str, seconds: float) -> Answer:
    answered = [each for each in report["workloads"] if each.get("estimate") is not None]
    errors = [each["error"] for each in report["workloads"] if each.get("error")]
    if answered and not errors:
        shown = "; ".join(
            f"{each['name']} {each['estimate']['peak']['device']['estimate'] / 2**30:.2f} GiB" for each in answered
        )
        return Answer(command, seconds, shown, "", "")
    texts = [f"{each['message']} {each.get('hint', '')}" for each in errors]
    texts += [each["reason"] for each in report.get("skipped", [])]
    text = " / ".join(texts)
    return Answer(command, seconds, "no figure", text or "nothing", _next(text))


def _next(text: str) -> str:
    match = _COMMAND.search(text)
    return "" if match is None else match[0].rstrip(".,:;")


def _cell(answer: Answer) -> str:
    return f"{answer.seconds:.0f} s, {answer.outcome}" + (f": {answer.message[:300]}" if answer.message else "")


if __name__ == "__main__":
    main()
