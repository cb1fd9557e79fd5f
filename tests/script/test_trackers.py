"""A tracker of experiments asks nobody for an account."""

import sys

from memlint.script.trackers import silence_trackers

WANDB = """
def init(project=None, mode="online"):
    if mode == "online":
        raise RuntimeError("No API key configured.")
    return mode
"""


def test_a_tracker_that_a_script_wants_online_does_nothing(tmp_path, monkeypatch):
    (tmp_path / "wandb.py").write_text(WANDB)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    silence_trackers()
    import wandb

    assert wandb.init(project="p", mode="online") == "disabled"
    assert wandb.init() == "disabled"
    monkeypatch.delitem(sys.modules, "wandb")
