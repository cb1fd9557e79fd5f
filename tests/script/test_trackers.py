"""A tracker of experiments asks nobody for an account."""

import sys

from memlint.script.trackers import draw_in_any_style, silence_trackers, write_without_tensorflow

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


def test_a_style_that_matplotlib_has_no_more_is_none(tmp_path, monkeypatch):
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").touch()
    style = "used = []\ndef use(style):\n    if style != 'ggplot': raise OSError(style)\n    used.append(style)\n"
    (tmp_path / "matplotlib" / "style.py").write_text(style)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ("matplotlib", "matplotlib.style"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    draw_in_any_style()
    import matplotlib.style

    matplotlib.style.use("seaborn-whitegrid")
    matplotlib.style.use("ggplot")
    assert matplotlib.style.used == ["ggplot"]
    for name in ("matplotlib", "matplotlib.style"):
        monkeypatch.delitem(sys.modules, name)


def test_tensorboard_does_without_tensorflow_whose_compiled_code_would_write(tmp_path, monkeypatch):
    package = tmp_path / "tensorboard" / "compat"
    package.mkdir(parents=True)
    (tmp_path / "tensorboard" / "__init__.py").touch()
    (package / "__init__.py").write_text(
        "def tf():\n    try:\n        from tensorboard.compat import notf\n        return 'its own'\n"
        "    except ImportError:\n        return 'tensorflow'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ("tensorboard", "tensorboard.compat", "tensorboard.compat.notf"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    write_without_tensorflow()
    import tensorboard.compat

    assert tensorboard.compat.tf() == "its own"
    for name in [each for each in sys.modules if each.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
