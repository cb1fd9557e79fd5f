from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memlint.base.errors import TargetError, UsageError, WorkloadError
from memlint.memory.devices import device_named
from memlint.memory.timeline import Timeline, live
from memlint.source.leading_scripts import likeliest_command
from memlint.tracing.recorder import trace_program
from memlint.workloads.construction.construct import build, build_program, complete
from memlint.workloads.discover import find_workloads
from memlint.workloads.loading import load_file
from tests.workloads.tables import read_workloads

LINEAR = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def forward(self, x):
        return self.layer(x)
"""


def names(path, **overrides):
    return [workload.name for workload in find_workloads(str(path), path.parent, overrides=overrides).workloads]


def reasons(path):
    return {left.name: left.reason for left in find_workloads(str(path), path.parent).left_out}


def built(path, name):
    (workload,) = find_workloads(f"{path}::{name}", path.parent).workloads
    return build(workload)


def test_a_class_without_required_arguments_is_found_with_its_file_and_name(write):
    path = write(LINEAR)
    (workload,) = find_workloads(str(path), path.parent, overrides={"batch": 3}).workloads
    assert (workload.name, workload.qualname, workload.path, workload.origin) == ("Net", "Net", str(path), "discovered")
    assert workload.batch == 3


def test_a_model_built_inside_another_is_left_out_and_named(write):
    path = write("""
class Part(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layer = nn.Linear(width, width)
    def forward(self, x): return self.layer(x)
class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([Part(), Part()])
    def forward(self, x):
        for part in self.parts: x = part(x)
        return x
""")
    assert names(path) == ["Whole"]
    assert reasons(path) == {"Part": "it is a part of Whole"}


def test_several_roots_come_largest_first(write):
    path = write("""
class Small(nn.Linear):
    def __init__(self): super().__init__(2, 2)
class Large(nn.Linear):
    def __init__(self): super().__init__(20, 20)
class Middle(nn.Linear):
    def __init__(self): super().__init__(5, 5)
""")
    assert names(path) == ["Large", "Middle", "Small"]


@pytest.mark.parametrize(
    "signature",
    ["config: Config", "cfg", "config: 'Config | None'"],
)
def test_a_required_config_is_made_from_its_dataclass_defaults(write, signature):
    path = write(f"""
@dataclass
class Config:
    width: int = 7
class Net(nn.Module):
    def __init__(self, {signature}):
        super().__init__()
        config = {signature.partition(":")[0]}
        self.layer = nn.Linear(config.width, 1)
    def forward(self, x): return self.layer(x)
""")
    assert names(path) == ["Net"]
    result = built(path, "Net")
    assert result.model.layer.in_features == 7
    assert "Config()" in result.assumptions[0].text


def test_a_required_config_is_taken_from_a_dictionary_of_the_file(write):
    path = write("""
SMALL_CONFIG = {"width": 9}
class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.layer = nn.Linear(cfg["width"], 1)
    def forward(self, x): return self.layer(x)
""")
    assert built(path, "Net").model.layer.in_features == 9


def test_the_config_class_named_after_the_model_is_preferred(write):
    path = write("""
@dataclass
class OtherConfig:
    width: int = 1
@dataclass
class NetConfig:
    width: int = 2
class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layer = nn.Linear(config.width, 1)
    def forward(self, x): return self.layer(x)
""")
    assert built(path, "Net").model.layer.in_features == 2


@pytest.mark.parametrize(
    "body",
    [
        "def build(): return Linear(4, 2)",
        "def build():\n    net = Linear(4, 2)\n    return net",
        "def build() -> nn.Module:\n    return {'net': Linear(4, 2)}['net']",
        "def build() -> 'Linear':\n    return getattr(nn, 'Linear')(4, 2)",
        "def made() -> Linear: return Linear(4, 2)\nmade.__module__ = 'elsewhere'\ndef build(): return made()",
    ],
)
def test_a_function_that_returns_a_module_of_another_file_is_found(write, body):
    path = write(f"from torch.nn import Linear\n{body}\ndef data(): return [1]\ndef fails(): return 1 / 0\n")
    assert names(path)[-1] in ("build", "made")


@pytest.mark.skipif(sys.version_info < (3, 14), reason="older ones look names up where a function is defined")
def test_annotations_for_type_checkers_alone_are_left_alone(write):
    assert names(write(LINEAR.replace("(self, x)", "(self, x: Absent)"))) == ["Net"]
    makes = "from torch.nn import Linear\ndef build(width: Absent = 4) -> Absent: return Linear(width, 2)\n"
    assert names(write(makes, "makes.py"))[-1] == "build"


def test_a_decorated_class_is_found_whatever_the_decorator_calls_it(write):
    path = write(
        "def registered(kind):\n    return type('Wrapped', (kind,), {'__module__': 'registry'})\n"
        + LINEAR.replace("class Net", "@registered\nclass Net")
    )
    assert names(path) == ["Net"]


def test_a_class_without_forward_is_named(write):
    path = write("class Coder(nn.Module):\n    def encode(self, x): return x\n")
    assert names(path) == []
    assert reasons(path) == {"Coder": "Coder has no forward"}


POLICY = """
import torch.nn as nn

class Base(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, 8)

    def forward(self, x): return self.layer(x)

class Policy(nn.Module):
    def __init__(self, shape, action_space):
        super().__init__()
        self.base = Base(shape[0])
        self.head = nn.Linear(8, action_space.n)

    def forward(self, x):
        raise NotImplementedError

    def act(self, x): return self.head(self.base(x))
"""
LEARNS = """
import torch
from environment import make
from model import Policy

def main():
    environment = make()
    policy = Policy(environment.shape, environment.action_space)
    optimizer = torch.optim.SGD(policy.parameters(), 0.1)
    policy.act(environment.reset()).sum().backward()
    optimizer.step()

if __name__ == "__main__":
    main()
"""


def test_a_model_that_only_its_script_can_build_and_call_is_left_to_the_script(write, monkeypatch):
    path = write(POLICY, "model.py")
    write(LEARNS, "learn.py")
    monkeypatch.chdir(path.parent)
    left_out = {each.name: each for each in find_workloads(str(path), path.parent).left_out}
    assert left_out["Policy"].reason == "Policy has no forward"
    assert likeliest_command(path, path.parent) == "memlint run learn.py"
    assert not any(each.call for each in left_out.values())  # a part alone is no answer


def test_a_class_with_unknown_arguments_is_left_out_with_their_names(write):
    path = write("""
class Net(nn.Module):
    def __init__(self, layers: nn.Module, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
    def forward(self, x): return self.layer(x)
""")
    assert names(path) == []
    assert reasons(path) == {"Net": "Net needs layers, width"}


def test_a_function_of_the_file_builds_a_class_that_needs_arguments(write):
    path = write("""
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, 2)
    def forward(self, x): return self.layer(x)
def net(num_classes=10):
    return Net(6)
""")
    assert names(path) == ["net"]
    assert reasons(path) == {}


def test_a_constructor_that_raises_is_left_out_with_the_line(write):
    path = write("""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        raise ValueError("no such checkpoint")
    def forward(self, x): return x
""")
    assert names(path) == []
    reason = reasons(path)["Net"]
    assert "ValueError: no such checkpoint" in reason
    assert f"{path}:9" in reason


@pytest.mark.parametrize(
    "body",
    [
        "x = 1\n",
        "from torch.nn import Linear\n",
        "import abc\nclass Base(nn.Module, abc.ABC):\n    @abc.abstractmethod\n    def forward(self, x): ...\n",
        "class NoForward(nn.Module):\n    pass\n",
    ],
)
def test_files_without_a_model_of_their_own_give_none(write, body):
    assert names(write(body)) == []


def test_a_model_without_parameters_is_left_out(write):
    path = write("class Act(nn.Module):\n    def forward(self, x): return x\n")
    assert reasons(path) == {"Act": "it has no parameters"}


def test_a_syntax_error_is_reported_with_its_line(write):
    path = write("\n\nclass (:\n")
    with pytest.raises(WorkloadError, match=rf"{path}:7"):
        names(path)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import json.nowhere", "ModuleNotFoundError"),
        ("scale = torch.ones(3, device='cuda')", "a tensor is created on a GPU while none is simulated"),
    ],
)
def test_a_file_that_raises_on_import_is_reported_with_type_message_and_line(write, statement, said):
    path = write(f"\n{statement}\n")
    with pytest.raises(WorkloadError, match=said) as caught:
        names(path)
    assert f"{path}:6" in caught.value.message


def test_a_missing_package_is_to_be_installed(write):
    path = write("import nowhere_at_all.inside\nclass Net(nowhere_at_all.Base): ...\n")
    with pytest.raises(WorkloadError) as caught:
        names(path)
    assert caught.value.hint.startswith(f"Install nowhere_at_all where memlint runs, {sys.prefix}")


def test_relative_imports_work_in_a_package(write, tmp_path):
    (tmp_path / "zoo" / "nets").mkdir(parents=True)
    for folder in ("zoo", "zoo/nets"):
        (tmp_path / folder / "__init__.py").write_text("")
    write("WIDTH = 11\n", "zoo/sizes.py")
    path = write(
        "from ..sizes import WIDTH\nclass Net(nn.Linear):\n    def __init__(self): super().__init__(WIDTH, 1)\n",
        "zoo/nets/net.py",
    )
    assert names(path) == ["Net"]


def test_relative_imports_work_without_init_files(write):
    write("WIDTH = 11\n", "loose/sizes.py")
    path = write(
        "from .sizes import WIDTH\nclass Net(nn.Linear):\n    def __init__(self): super().__init__(WIDTH, 1)\n",
        "loose/net.py",
    )
    assert built(path, "Net").model.in_features == 11


def test_a_file_named_like_an_imported_module_is_imported_all_the_same(write):
    assert names(write(LINEAR, "json.py")) == ["Net"]


@pytest.mark.parametrize(
    ("expression", "has_inputs", "has_loss"),
    [
        ("Net()", False, False),
        ("(Net(), torch.zeros(batch, 4))", True, False),
        ("(Net(), {'x': torch.zeros(batch, 4)}, lambda output, inputs: output.sum())", True, True),
        ("memlint_declare.Declaration(Net(), loss=lambda output, inputs: output.sum())", False, True),
    ],
)
def test_functions_may_return_a_model_alone_or_with_inputs_and_loss(write, expression, has_inputs, has_loss):
    path = write(
        f"import memlint.targets.declare as memlint_declare\n{LINEAR}\ndef make(batch):\n    return {expression}\n".replace(
            "import memlint.targets.declare as memlint_declare",
            "import importlib\nmemlint_declare = importlib.import_module('memlint.targets.declare')",
        )
    )
    result = built(path, "make")
    assert type(result.model).__name__ == "Net"
    assert (result.inputs is not None, result.loss is not None) == (has_inputs, has_loss)
    if has_inputs:
        assert next(iter(result.inputs.values())).shape == (8, 4)


def test_a_function_that_returns_something_else_says_what_to_return(write):
    path = write("def make():\n    return 3\n")
    with pytest.raises(WorkloadError, match="gives a int") as caught:
        built(path, "make")
    assert "(model, inputs)" in caught.value.hint


def test_each_build_of_a_module_instance_is_a_copy(write):
    path = write("net = nn.Linear(2, 2)\n")
    first, second = built(path, "net").model, built(path, "net").model
    assert first is not second
    assert first.weight.data_ptr() != second.weight.data_ptr()


def test_declared_functions_win_over_discovery_and_keep_their_settings(write):
    path = write(f"""
import importlib
workload = importlib.import_module("memlint.targets.declare").workload
{LINEAR}
@workload(batch=3, dtype="bf16-amp", name="tiny")
def build():
    return Net()
@workload
def other(batch):
    return Net(), torch.zeros(batch, 4)
def memlint_workload():
    return Net()
""")
    found = find_workloads(str(path), path.parent).workloads
    assert [(w.name, w.batch, w.dtype, w.origin) for w in found] == [
        ("tiny", 3, "bf16-amp", "declared"),
        ("other", 8, "float32", "declared"),
        ("model", 8, "float32", "declared"),
    ]
    assert [w.name for w in find_workloads(f"{path}::other", path.parent).workloads] == ["other"]


def test_workloads_of_the_pyproject_are_used_for_their_file(write, tmp_path):
    path = write(LINEAR)
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.memlint.workload]]\nname = "n"\ntarget = "model.py::Net"\nbatch = 5\n'
    )
    found = find_workloads(str(path), tmp_path, read_workloads(tmp_path / "pyproject.toml"), {"dtype": "bfloat16"})
    assert [(w.name, w.batch, w.dtype, w.origin) for w in found.workloads] == [("n", 5, "bfloat16", "config")]


def test_targets_that_do_not_exist_are_named(write, tmp_path):
    path = write(LINEAR)
    with pytest.raises(TargetError, match=r"gone\.py does not exist"):
        find_workloads(str(tmp_path / "gone.py"), tmp_path)
    (workload,) = find_workloads(f"{path}::Nett", tmp_path).workloads
    with pytest.raises(TargetError, match="has no Nett") as caught:
        build(workload)
    assert caught.value.hint == "Did you mean Net?"
    (workload,) = find_workloads(f"{path}::Other", tmp_path).workloads
    with pytest.raises(TargetError, match="has no Other") as caught:
        build(workload)
    assert caught.value.hint == "It has Net."  # and not nn and torch, which it imports


def test_a_name_that_a_package_does_not_have_gets_a_near_one(tmp_path):
    pytest.importorskip("transformers")
    (workload,) = find_workloads("transformers::LlamaConfg", tmp_path).workloads
    with pytest.raises(TargetError, match="transformers has no LlamaConfg") as caught:
        build(workload)
    assert caught.value.hint == "Did you mean LlamaConfig?"


def test_arguments_of_the_workload_reach_the_constructor(write, tmp_path):
    write("class Net(nn.Linear):\n    def __init__(self, width): super().__init__(width, 1)\n")
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.memlint.workload]]\ntarget = "model.py::Net"\narguments = { width = 13 }\n'
    )
    (workload,) = read_workloads(tmp_path / "pyproject.toml")
    assert build(workload, Path(tmp_path)).model.in_features == 13


BUILD = """
def build(batch=2):
    return nn.Linear(4, 2), torch.zeros(batch, 4)
"""


@pytest.mark.parametrize(
    "declaration",
    [
        "memlint_workload = build",
        "memlint_workload = lambda batch: build(batch)",
        "from elsewhere import other as memlint_workload",
        "import elsewhere; memlint_workload = elsewhere.other",
    ],
)
def test_a_function_that_is_assigned_declares_the_workload(write, declaration):
    write(BUILD.replace("build", "other"), "elsewhere.py")
    path = write(f"{BUILD}{declaration}\n")
    (workload,) = find_workloads(str(path), path.parent).workloads
    assert (workload.origin, workload.qualname) == ("declared", "memlint_workload")
    assert build_program(workload, path.parent, device="cpu")


def test_a_declaration_that_is_imported_under_its_own_name_is_that_of_the_other_file(write):
    write(BUILD.replace("build", "memlint_workload"), "declares.py")
    path = write("from declares import memlint_workload\n")
    assert not find_workloads(str(path), path.parent).workloads


AT_THE_TOP = """
import memlint
model = nn.Linear(1024, 1024)
x = torch.zeros(512, 1024)
def step(model, inputs, optimizer):
    model(inputs["0"]).sum().backward()
    for parameter in model.parameters():
        parameter.grad = None
def memlint_workload():
    return memlint.Declaration({}, {}, step=step)
"""


def test_a_model_made_at_the_top_level_takes_on_the_host_what_any_takes(write):
    peaks = []
    for number, parts in enumerate(
        [("model", "x"), ("nn.Linear(1024, 1024)", "torch.zeros(512, 1024)"), ("model", "x")]
    ):
        path = write(AT_THE_TOP.format(*parts), f"top{number}.py")
        (workload,) = find_workloads(str(path), path.parent, overrides={"gpu": "cpu"}).workloads
        for _ in range(2):
            timeline = Timeline.of(trace_program(build_program(workload, path.parent), device_named("cpu")).trace)
            peaks.append(max(live(timeline)))
    assert set(peaks) == {2 * 4 * 1024 * 1024 + 4 * 1024 + 2 * 4 * 512 * 1024 + 8}


def test_a_model_made_at_the_top_level_is_counted_by_every_simulation_of_a_gpu(write):
    path = write(AT_THE_TOP.format("model", "x"))
    (workload,) = find_workloads(str(path), path.parent).workloads
    program = build_program(workload, path.parent)
    peaks = [max(live(Timeline.of(trace_program(program, device_named("a100-80gb")).trace))) for _ in range(3)]
    assert len(set(peaks)) == 1


@pytest.mark.usefixtures("copied_pythons")
def test_a_tensor_of_the_top_level_that_stays_outside_of_the_host_is_named(write):
    path = write(AT_THE_TOP.format("nn.Linear(1024, 1024)", "x").replace('model(inputs["0"])', "(model(x) * x)"))
    command = [sys.executable, "-m", "memlint", "check", "--gpu", "cpu", "--no-cache", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "made before the host was simulated" in done.stdout


def test_a_setting_that_is_refused_before_any_model_is_known_names_the_file(write):
    path = write("")
    with pytest.raises(UsageError, match="workload model: strategy fsdp of one rank"):
        find_workloads(str(path), path.parent, overrides={"strategy": "fsdp"})


def test_a_part_that_its_model_has_only_with_other_arguments_is_no_model(write):
    path = write("""
class Part(nn.Module):
    def __init__(self, k=8):
        super().__init__()
        self.layer = nn.Linear(k, k)
    def forward(self, x): return self.layer(x)
class Whole(nn.Module):
    def __init__(self, with_part=False):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.part = Part() if with_part else nn.Identity()
    def forward(self, x): return self.part(self.layer(x))
if __name__ == "__main__":
    print(Part(k=8)(torch.randn(2, 8)))
    print(Whole()(torch.randn(2, 8)))
""")
    found = find_workloads(str(path), path.parent)
    assert [each.name for each in found.workloads] == ["Whole"]
    assert {each.name: each.reason for each in found.left_out} == {"Part": "it is a part of Whole"}


def test_what_a_file_declares_and_a_table_targets_is_one_workload_with_the_settings_of_both(write, tmp_path):
    path = write(
        "import memlint\nimport torch\nfrom torch import nn\n"
        "@memlint.workload(batch=4, dtype='bfloat16')\n"
        "def small(batch):\n    return nn.Linear(4, 2), torch.randn(batch, 4)\n"
        "@memlint.workload\n"
        "def other(batch):\n    return nn.Linear(4, 2), torch.randn(batch, 4)\n"
    )
    (tmp_path / "pyproject.toml").write_text(
        f'[[tool.memlint.workload]]\nname = "table"\ntarget = "{path.name}::small"\nbatch = 16\n'
    )
    found = find_workloads(str(path), tmp_path, read_workloads(tmp_path / "pyproject.toml")).workloads
    assert [(each.name, each.batch, each.dtype) for each in found] == [
        ("other", 8, "float32"),
        ("table", 16, "bfloat16"),
    ]


def test_a_builder_that_makes_the_model_by_name_is_found_where_the_class_cannot_be_built(write):
    path = write("""
    class Net(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.layer = nn.Linear(config["width"], 2)
        def forward(self, x): return self.layer(x)
    KINDS, SIZES = {"net": Net}, {"small": {"width": 8}}
    def create(kind, size): return KINDS[kind](SIZES[size])
    def net_small(pretrained=False):
        model = create("net", "small")
        return model
    def summary_of_all(): raise SystemError
    """)
    (workload,) = find_workloads(str(path), path.parent).workloads
    assert workload.qualname == "net_small"


FAMILY = """
class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layer = nn.Linear(width, width)
    def forward(self, x):
        return self.layer(x)
def net_tiny(pretrained=False): return Net(2)
def net_base(pretrained=False): return Net(4)
def net_large(pretrained=False): return Net(16)
"""


def test_of_a_family_the_one_that_the_project_names_is_taken_else_the_base_and_the_headline_names_others(
    write, tmp_path
):
    path = write(FAMILY)
    (workload,) = find_workloads(str(path), tmp_path).workloads
    shown = "one of 3 models of the file that nothing chooses among; another with ::NAME, as net_tiny, net_large"
    assert (workload.name, workload.built_by) == ("net_base", shown)
    (tmp_path / "train.py").write_text("import timm\ntimm.create_model(args.model)\n")
    (tmp_path / "README.md").write_text("```sh\npython train.py --model net-large --data x\n```\n")
    (workload,) = find_workloads(str(path), tmp_path).workloads
    assert (workload.name, workload.built_by) == ("net_large", "")
    note = "net_large, of 3 such functions: a command of README.md names it"
    assert (note, 2) in [(each.text, each.frame.line) for each in workload.found if each.frame is not None]


def test_no_other_model_stands_for_one_that_scripts_build_and_that_cannot_be_built(write, tmp_path):
    path = write(f"""{LINEAR}
class Whole(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.layer = nn.Linear(table["width"], 2)
    def forward(self, x): return self.layer(x)
""")
    (tmp_path / "train.py").write_text(
        f"import torch\nfrom {path.stem} import Whole\nmodel = Whole(torch.load('table.pt'))\n"
        "optimizer = torch.optim.SGD(model.parameters())\nmodel(torch.zeros(2)).sum().backward()\n"
    )
    assert names(path) == []
    assert reasons(path)["Net"] == "no script of the project builds it"


def test_a_part_of_a_part_of_what_cannot_be_built_is_no_model(write):
    path = write("""
class Leaf(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layer = nn.Linear(width, width)
    def forward(self, x): return self.layer(x)
class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.leaf = Leaf(config.width)
    def forward(self, x): return self.leaf(x)
class Whole(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
    def forward(self, x): return self.blocks[0](x)
""")
    assert names(path) == []
    assert reasons(path)["Leaf"] == "it is a part of Block, which cannot be built"


def test_the_size_of_images_that_nothing_states_is_in_the_headline_unless_the_model_takes_no_other(write):
    free = write("""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)
    def forward(self, x): return self.layer(x)
""")
    (workload,) = find_workloads(str(free), free.parent).workloads
    assert complete(workload)[0].built_by == "images of 224 x 224 pixels: nothing states their size"
    (free.parent / "train.py").write_text(
        f"from {free.stem} import Net\nfrom torchvision import transforms\nimport torch\n"
        "transform = transforms.RandomCrop(48)\nmodel = Net()\nmodel(torch.zeros(2)).sum().backward()\n"
    )
    (workload,) = find_workloads(str(free), free.parent).workloads
    assert complete(workload)[0].built_by == ""


def test_a_small_part_that_a_script_builds_beside_the_whole_is_left_out(write, tmp_path):
    path = write("""
class Gate(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layer = nn.Linear(width, width)
    def forward(self, x): return self.layer(x)
class Whole(nn.Module):
    def __init__(self, gated=False):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), Gate(64) if gated else nn.Linear(64, 16))
    def forward(self, x): return self.layers(x)
""")
    for name in ("Gate", "Whole"):
        (tmp_path / f"train_{name.lower()}.py").write_text(
            f"import torch\nfrom {path.stem} import {name}\nmodel = {name}()\n"
            "optimizer = torch.optim.SGD(model.parameters())\nmodel(torch.zeros(2)).sum().backward()\n"
        )
    assert names(path) == ["Whole"]


def test_a_checkpoint_that_is_not_there_is_done_without_while_a_gpu_is_simulated(write):
    path = write(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(8, 8)
                checkpoint = torch.load("./weights/net_pretrain.tar", map_location="cpu")
                self.layer.load_state_dict({k[7:]: v for k, v in checkpoint["state_dict"].items()})
            def forward(self, x):
                return self.layer(x)
        """
    )
    (workload,) = find_workloads(str(path), path.parent).workloads
    assert workload.qualname == "Net"


def test_a_folder_without_init_that_has_the_name_of_its_file_is_the_package_of_that_name(tmp_path):
    folder = tmp_path / "models" / "foldernet"
    folder.mkdir(parents=True)
    (folder / "blocks.py").write_text("from torch import nn\nclass Block(nn.Linear):\n    pass\n")
    net = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.block = Block(8, 8)\n"
    )
    net += "    def forward(self, x):\n        return self.block(x)\n"
    for imports in ("from .blocks import Block", "from models.foldernet.blocks import Block"):
        (folder / "foldernet.py").write_text(f"{imports}\nfrom torch import nn\n{net}")
        (workload,) = find_workloads(str(folder / "foldernet.py"), tmp_path).workloads
        assert workload.qualname == "Net"
        for name in [name for name in sys.modules if name.partition(".")[0] in ("foldernet", "models")]:
            del sys.modules[name]


def test_a_device_that_a_model_wants_is_given_with_its_config(tmp_path):
    file = tmp_path / "model.py"
    file.write_text(
        "from dataclasses import dataclass\nimport torch\nfrom torch import nn\n\n\n"
        "@dataclass\nclass NetConfig:\n    width: int = 24\n\n\n"
        "class Net(nn.Module):\n    def __init__(self, params: NetConfig, device: torch.device, *, device_of_table=None):\n"
        "        super().__init__()\n        with torch.device(device):\n"
        "            self.layer = nn.Linear(params.width, params.width)\n\n"
        "    def forward(self, x):\n        return self.layer(x)\n"
    )
    (workload,) = find_workloads(str(file), tmp_path).workloads
    built = build(workload)
    assert built.model.layer.weight.shape == (24, 24)
    assert {parameter.device.type for parameter in built.model.parameters()} == {"cpu"}


def test_a_folder_with_a_file_of_its_name_is_the_package_that_its_files_import_from(write, tmp_path):
    write("class EGNN: ...\n", "egnn/egnn.py")
    write("WIDTH = 11\n", "egnn/sizes.py")
    path = write("from egnn.sizes import WIDTH\nfrom egnn.egnn import EGNN\n", "egnn/models.py")
    before = set(sys.modules)
    try:
        assert load_file(path, tmp_path).WIDTH == 11
    finally:
        for name in sys.modules.keys() - before:
            del sys.modules[name]


def test_a_name_that_a_package_has_in_another_module_is_found_there(tmp_path, monkeypatch):
    package = tmp_path / "shelf_of_nets"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "deep.py").write_text("def deep_net():\n    ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    (workload,) = find_workloads("shelf_of_nets::deep_net", tmp_path).workloads
    with pytest.raises(TargetError) as caught:
        build(workload)
    assert caught.value.hint == "It is shelf_of_nets.deep::deep_net."


def test_a_file_that_asks_a_question_as_it_is_imported_gets_an_empty_line(write):
    path = write("""
    folder = input("Where is the data? ") or "data"
    model = nn.Linear(len(folder), 8)
    """)
    assert load_file(path).model.in_features == 4


def test_models_that_a_file_makes_as_it_is_imported_are_found_by_the_names_of_their_variables(write):
    path = write("""
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 2)
        def forward(self, x): return self.layer(x)
    backbone = nn.Linear(4, 8)
    model = nn.Sequential(backbone, nn.ReLU(), Head())
    critic = nn.Sequential(nn.Linear(4, 16), nn.Linear(16, 1))
    teacher = nn.Sequential(nn.Linear(4, 2)).requires_grad_(False)
    loss = nn.CrossEntropyLoss()
    """)
    assert names(path) == ["critic", "model"]
    assert reasons(path) == {"Head": "it is a part of model", "loss": "it has no parameters"}
    (workload, _) = find_workloads(str(path), path.parent).workloads
    assert complete(workload)[0].inputs[0].shape == ("batch", 4)


def test_a_variable_of_a_class_that_can_be_built_is_no_second_model(write):
    assert names(write(f"{LINEAR}\nmodel = Net()\n")) == ["Net"]


def test_a_function_named_as_a_builder_is_found_and_gets_a_number_that_it_asks_for(write):
    path = write("""
    def get_model(num_classes):
        return nn.Sequential(nn.Linear(4, 8), nn.Linear(8, num_classes))
    def get_data(num_items): raise SystemError
    """)
    (workload,) = find_workloads(str(path), path.parent).workloads
    assert (workload.name, workload.guessed) == ("get_model", {"num_classes": 10})
    assert names(write("import torch.nn as of\ndef build():\n    return of.Linear(2, 2)\n", "other.py")) == ["build"]


def test_a_builder_that_fails_is_left_out_with_its_reason(write):
    path = write("def build():\n    raise ValueError('no such thing')\n")
    assert "ValueError: no such thing" in reasons(path)["build"]


def test_parts_that_a_model_is_given_are_made_by_the_names_of_its_parameters(write):
    path = write("""
    class Encoder(nn.Module):
        def __init__(self, emb_dim, hid_dim):
            super().__init__()
            self.layer = nn.Linear(emb_dim, hid_dim)
        def forward(self, x): return self.layer(x)
    class TextDecoder(nn.Module):
        def __init__(self, hid_dim, width=3):
            super().__init__()
            self.layer = nn.Linear(hid_dim, width)
        def forward(self, x): return self.layer(x)
    class Seq2Seq(nn.Module):
        def __init__(self, encoder, text_decoder):
            super().__init__()
            self.encoder, self.decoder = encoder, text_decoder
        def forward(self, x): return self.decoder(self.encoder(x))
    """)
    (workload,) = find_workloads(str(path), path.parent).workloads
    assert workload.name == "Seq2Seq"
    assert {name: str(value) for name, value in workload.guessed.items()} == {
        "encoder": "Encoder(emb_dim=512, hid_dim=512)",
        "text_decoder": "TextDecoder(hid_dim=512)",
    }
    assert reasons(path) == {"Encoder": "it is a part of Seq2Seq", "TextDecoder": "it is a part of Seq2Seq"}


def test_a_part_that_can_be_built_keeps_no_whole_from_being_guessed(write):
    path = write("""
    @dataclass
    class Config:
        d_model: int
        depth: int = 2
    class Norm(nn.Module):
        def __init__(self, width=8):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(width))
        def forward(self, x): return x * self.scale
    class Net(nn.Module):
        def __init__(self, args: Config, device=None):
            super().__init__()
            self.device = device
            self.layers = nn.Sequential(*(nn.Linear(args.d_model, args.d_model) for _ in range(args.depth)))
            self.norm = Norm(args.d_model)
        def forward(self, x): return self.norm(self.layers(x + torch.ones(x.shape[-1], device=self.device)))
    """)
    (workload,) = find_workloads(str(path), path.parent).workloads
    assert (workload.name, str(workload.guessed["args"])) == ("Net", "Config(d_model=512)")
    assert complete(workload)[0].inputs[0].shape == ("batch", 512)


def test_a_base_from_which_others_derive_is_no_model_of_a_file(tmp_path):
    path = tmp_path / "nets.py"
    derived = "class {0}({1}):\n    def __init__(self, size{2}):\n        super().__init__()\n"
    path.write_text(
        "from torch import nn\n"
        + LINEAR.replace("class Net", "class BaseNet")
        + derived.format("Tagger", "BaseNet", "")
        + "        self.head = nn.Linear(2, size.no_such_number)\n"
        + LINEAR.replace("class Net", "class Plain")
        + derived.format("Wide", "Plain", "=8")
    )
    assert sorted(names(path)) == ["Plain", "Wide"]
    assert reasons(path)["BaseNet"] == "other models derive from it"
