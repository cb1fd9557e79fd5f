"""A checkpoint that is not there loads nothing, whichever way its weights are taken out of it."""

import pytest

from tests.script.isolated import needs, run

MODEL = """\
import os
import numpy as np
import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).cuda()
"""
HELD = "print([tuple(p.shape) for p in model.parameters()], type(model[0].weight).__name__)\n"
SHAPES = "[(3, 4), (3,), (3,), (3,)] Parameter"


def text(path):
    return f"the checkpoint {path} is not there: the weights stay as they were initialized"


@pytest.mark.parametrize(
    ("path", "use"),
    [
        ("pretrained/vit.pth", "model.load_state_dict(torch.load(PATH, map_location='cpu'))"),
        ("out/last.pt", "model.load_state_dict(torch.load(PATH)['model'], strict=True)"),
        ("vae/kl16.ckpt", "model.load_state_dict(torch.load(PATH)['state_dict'], strict=False).missing_keys"),
        (
            "a.pth",
            "model.load_state_dict({k.replace('module.', ''): v for k, v in torch.load(PATH)['state_dict'].items()})",
        ),
        ("weights/R50.npz", "model[0].weight.data.copy_(torch.from_numpy(np.load(PATH)['kernel'].transpose(1, 0)))"),
        ("b.pth", "model[0].weight = nn.Parameter(torch.load(PATH)['head.weight'][:3].float())"),
        (
            "k.pth",
            "held = torch.load(PATH)\nif isinstance(held, dict) and 'model' not in held: raise KeyError(held.keys())",
        ),
        ("l.pth", "held = torch.load(PATH); assert 'model' in held, 'no model'"),
        ("c.pth", "model[1].running_mean = torch.load(PATH).get('mean')"),
        ("m.pth", "held = torch.load(PATH)\nif held.get('pos') is not None:\n    n, l, c = held['pos'].size()"),
        ("d.pth", "assert torch.load(PATH)['w'].shape == model[0].weight.shape"),
        ("e.pth", "print(torch.cat([model[0].weight, torch.load(PATH)['w'].cuda()]).size() == 3)"),
        ("f.pth", "print(range(torch.load(PATH)['epoch'] + 1), torch.load(PATH).pop('best_acc'))"),
        ("g.pth", "torch.optim.AdamW(model.parameters()).load_state_dict(torch.load(PATH)['optimizer'])"),
        ("h.pth", "print(nn.functional.interpolate(torch.load(PATH)['pos'], size=(2, 2), mode='bicubic').shape)"),
    ],
)
def test_a_missing_checkpoint_leaves_the_model_as_it_is(tmp_path, path, use):
    ran = run(tmp_path / "p", f"{MODEL}{use.replace('PATH', repr(path))}\n{HELD}")
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines()[-1] == SHAPES
    assert ran.assumptions == {text(path): 6}


def test_a_script_that_asks_by_a_package_for_a_checkpoint_without_which_it_gives_up_finds_it(tmp_path, monkeypatch):
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages/paths.py").write_text(
        "import os\ndef exists(path): return os.path.exists(path)\nopen = open\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site-packages"), prepend=":")
    ran = run(
        tmp_path / "p",
        f"""{MODEL}
import paths
assert paths.exists('weights/base.pt'), 'no checkpoint'
print(paths.exists('weights/other.pt'))
with paths.open('weights/base.pt', 'rb') as file:
    model.load_state_dict(torch.load(file)['model'])
{HELD}""",
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["False", SHAPES]


def test_a_function_that_loads_weights_by_hand(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import numpy as np, torch
        from torch import nn
        def as_tensor(weights, conv=False):
            return torch.from_numpy(weights.transpose([3, 2, 0, 1]) if conv else weights)
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.position = nn.Conv2d(3, 8, 16), nn.Parameter(torch.zeros(1, 5, 8))
            def load_from(self, weights):
                with torch.no_grad():
                    self.conv.weight.copy_(as_tensor(weights["embedding/kernel"], conv=True))
                    position = as_tensor(weights["pos"])
                    if position.size() == self.position.size():
                        self.position.copy_(position)
                    else:
                        self.position.copy_(position[:, 1:])
        net = Net().cuda()
        net.load_from(weights=np.load("../model/imagenet21k/R50+ViT-B_16.npz"))
        print(net.position.shape, net.conv.weight.shape)
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout == "torch.Size([1, 5, 8]) torch.Size([8, 3, 16, 16])\n"
    assert ran.assumptions == {text("../model/imagenet21k/R50+ViT-B_16.npz"): 18}


def test_a_size_is_not_made_up(tmp_path):
    ran = run(
        tmp_path / "p",
        "import torch\nsaved = torch.load('out/ckpt.pt')\nlayers = [torch.nn.Linear(2, 2) for _ in range(saved['config']['n_layer'])]\n",
    )
    assert ran.error.startswith("FileNotFoundError: [Errno 2] No such file or directory: 'out/ckpt.pt'")
    assert f"{tmp_path}/p/train.py:3 takes a number from the checkpoint out/ckpt.pt, which is not there" in ran.error


@pytest.mark.parametrize(
    "reads",
    [
        "np.load('data/train_images.npy')",
        "torch.load('data/processed/training.pt')",
        "np.load('tokens/shard_0.npy')",
        "Rows()[0]",
    ],
)
def test_missing_data_is_not_taken_for_a_checkpoint(tmp_path, reads):
    rows = "class Rows(torch.utils.data.Dataset):\n    def __getitem__(self, i): return torch.load('model.pt')\n"
    ran = run(tmp_path / "p", f"import numpy as np\nimport torch\n{rows}{reads}\n")
    assert ran.error.startswith("FileNotFoundError")
    assert not ran.assumptions


def test_a_checkpoint_that_is_there_is_loaded(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import torch
        torch.save({"w": torch.ones(2)}, "kept.pth")
        print(torch.load("kept.pth")["w"].shape)
        torch.nn.Linear(2, 2).load_state_dict({})
        """,
        unchanged=False,
    )
    assert "Missing key(s) in state_dict" in ran.error
    assert ran.stdout == "torch.Size([2])\n"
    assert not ran.assumptions


@needs("safetensors")
def test_a_missing_file_of_safetensors(tmp_path):
    ran = run(
        tmp_path / "p",
        f"{MODEL}from safetensors.torch import load_file\nmodel.load_state_dict(load_file('m.safetensors'))\n{HELD}",
    )
    assert ran.error is None, ran.stderr
    assert ran.assumptions == {text("m.safetensors"): 7}


def test_the_names_of_weights_are_those_that_a_script_compares_with(tmp_path):
    text = """\
        import torch
        from torch import nn
        model = nn.Linear(4, 3).cuda()
        checkpoint = torch.load("best.pth")
        state = checkpoint["model"]
        missing = set(model.state_dict().keys()) - set(state.keys())
        model.load_state_dict({name: state[name] for name in state.keys()})
        print(missing, checkpoint["best_val_loss"].item(), tuple(model.weight.shape))
    """
    ran = run(tmp_path / "p", text)
    assert ran.stdout == "set() 0 (3, 4)\n", ran.stderr


def test_a_model_of_lightning_whose_checkpoint_is_not_there_has_the_sizes_of_its_constructor(tmp_path, monkeypatch):
    core = tmp_path / "site-packages/pytorch_lightning/core"
    core.mkdir(parents=True)
    (core / "module.py").write_text(
        "def _load_from_checkpoint(cls, checkpoint_path, map_location=None, **kwargs):\n"
        "    with open(checkpoint_path, 'rb') as file:\n"
        "        return file.read()\n"
    )
    for folder in (core, core.parent):
        (folder / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site-packages"), prepend=":")
    ran = run(
        tmp_path / "p",
        f"""{MODEL}
from pytorch_lightning.core.module import _load_from_checkpoint as load

class Coder(nn.Linear):
    def __init__(self, width=5):
        super().__init__(width, 3)

class Sized(nn.Linear):
    def __init__(self, width):
        super().__init__(width, 3)

print(load(Coder, "runs/vae.ckpt").in_features, load(Coder, "runs/vae.ckpt", "cpu", width=7).in_features)
try:
    load(Sized, "runs/vae.ckpt")
except FileNotFoundError:
    print("not there")
""",
    )
    assert (ran.error, ran.stdout.split()) == (None, ["5", "7", "not", "there"]), ran.stderr
    assert any(each.startswith("the checkpoint runs/vae.ckpt is not there: Coder has") for each in ran.assumptions)
