"""Messages about a model that cannot be analysed name what to type."""

import pytest

from memlint.commands.likely_commands import with_commands
from memlint.config import Settings
from memlint.report.from_rules import failed_target
from memlint.report.model import Error
from memlint.worker.protocol import Request

MODEL = "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, configs): ...\n"
TRAIN = "from model import Net\nif __name__ == '__main__':\n    net = Net(load())\n    net(x).backward()\n    optim.step()\n"
DECLARE = "memlint check model.py --init writes a declaration with their arguments, to be filled in."


@pytest.fixture
def hint_of(tmp_path, monkeypatch):
    """Return the hint that becomes of one, in a project with a script and its README's command, or without."""

    def written(hint, *, has_script=True):
        files = {"model.py": MODEL}
        if has_script:
            files |= {"train.py": TRAIN, "README.md": "```\npython train.py --config configs/base.yaml\n```\n"}
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        monkeypatch.chdir(tmp_path)
        failed = failed_target("model.py", Error(kind="target", message="it needs configs", hint=hint))
        request = Request(target="model.py", path=str(tmp_path / "model.py"), root=str(tmp_path), settings=Settings())
        (workload,) = with_commands([failed], [request], cache=False)
        return workload.error.hint

    return written


def test_the_projects_own_command_comes_before_a_declaration(hint_of):
    assert hint_of(DECLARE) == f"Type memlint run train.py --config configs/base.yaml. Or: {DECLARE}"


def test_what_the_environment_lacks_comes_before_the_command(hint_of):
    install = "Install einops where memlint runs: pip install einops"
    assert hint_of(install) == (
        f"{install} Then, or in its place, type memlint run train.py --config configs/base.yaml."
    )


def test_without_a_script_the_hint_stays(hint_of):
    assert hint_of(DECLARE, has_script=False) == DECLARE
