"""What is slow to import is imported by who uses it, and by nobody else. Each test needs a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from memlint.accelerator import lazy_imports

ROOT = Path(__file__).parents[2]
START = """
import sys
from memlint.workloads import torchvision_schemas
torchvision_schemas.install()
from memlint.cuda import session
loaded = lambda: "torch._dynamo.convert_frame" in sys.modules
"""


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", START + code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_only_asks_about_it_does_not_import_it() -> None:
    run("""
import torch, torch.utils.checkpoint, torchvision.ops
weight = torch.nn.Parameter(torch.ones(2))
weight.sum().backward()
torch.optim.AdamW([weight]).step()
torch.utils.checkpoint.checkpoint(torch.exp, weight, use_reentrant=False).sum().backward()
assert torch._dynamo.config.verbose is False
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
with TransformGetItemToIndex():
    assert torch.arange(3)[torch.tensor(2)] == 2
assert not loaded()
""")


EACH = """
import os, traceback
for program in {programs!r}:
    child = os.fork()
    if not child:
        try:
            exec(program)
        except BaseException:
            print(program, traceback.format_exc(), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    {beforehand}
    assert not loaded()
"""
DYNAMO = "assert torch._dynamo is sys.modules['torch._dynamo']; assert torch._dynamo.utils.__file__; assert loaded()"
SYMPY = "assert sys.modules['sympy'].core.__file__"
USES = {
    DYNAMO: [
        "import torch; config = torch._dynamo.config; torch._dynamo.reset(); assert config is torch._dynamo.config",
        "import torch._dynamo; torch._dynamo.reset()",
        (
            "from torch._dynamo.exc import Unsupported; import torch._dynamo.eval_frame; "
            "assert torch._dynamo.exc.Unsupported is Unsupported"
        ),
        "from torch._dynamo.utils import counters; counters.clear()",
        "import torchvision.ops, torch; torch._dynamo.utils.counters.clear()",
        (
            "import torch; from torch._dynamo._trace_wrapped_higher_order_op import mod_index as used; "
            "from torch._dynamo import config, _trace_wrapped_higher_order_op as now; assert now.mod_index is used"
        ),
    ],
    SYMPY: [
        "import sympy; assert sympy.Symbol('x') + 0 == sympy.Symbol('x') and isinstance(sympy.Symbol('x'), sympy.Basic)",
        (
            "import sympy.core.kind as kind; import sympy; assert sympy.core.kind is kind; "
            "assert sympy.Symbol('x').kind is kind.NumberKind and kind.__spec__.origin == kind.__file__"
        ),
        "from sympy import S; assert S.Zero == 0",
        "import sympy; assert sympy.__version__",
        (
            "from torch.utils._sympy.functions import FloorDiv, Max; import sympy; "
            "assert isinstance(Max(sympy.Symbol('x'), sympy.Integer(1)), Max); "
            "assert FloorDiv(sympy.Integer(7), sympy.Integer(2)) == 3"
        ),
        (
            "import torch; from torch.export import Dim, export; "
            "x = export(torch.nn.Linear(3, 4), (torch.rand(2, 3),), dynamic_shapes=({0: Dim('b')},)); "
            "assert len(x.range_constraints) == 1"
        ),
        (
            "from torch.fx.experimental.symbolic_shapes import ShapeEnv, guard_or_false; "
            "from torch.fx.experimental import symbolic_shapes; assert symbolic_shapes.ShapeEnv is ShapeEnv"
        ),
    ],
}
BEFOREHAND = {DYNAMO: "import torch.distributed.fsdp", SYMPY: "pass"}
"""Code that runs before all uses but the first: its imports are slow, and make no difference to them."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="every use needs a process that has only just begun")
@pytest.mark.parametrize("really", USES)
def test_whoever_uses_it_gets_the_real_one(really: str) -> None:
    programs = [f"{use}\nimport torch\n{really}" for use in USES[really]]
    run(EACH.format(programs=programs, beforehand=BEFOREHAND[really]))


def test_a_step_asks_about_symbols_and_imports_none() -> None:
    run("""
import importlib.util, inspect, torch
from memlint.memory.devices import device_named
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.GELU(), torch.nn.Flatten())
with session.virtual_device(device_named("a100-80gb")):
    model.cuda()
    for x in (torch.rand(2, 3, 8, 8, device="cuda"), torch.rand(2, 3, 9, 9, device="cuda")):
        y = model(x)
        (torch.cat([y, y]) + y[:1]).softmax(1).mean().backward()
    half, labels = torch.rand(6, 5, device="cuda", dtype=torch.bfloat16), torch.zeros(6, dtype=torch.int64, device="cuda")
    torch.nn.functional.cross_entropy(half, labels)
assert inspect.getmodule(torch.nn.Linear).__name__ == "torch.nn.modules.linear"
assert importlib.util.find_spec("sympy").origin
assert "sympy.core" not in sys.modules and not hasattr(sys.modules["torch.utils._sympy.functions"], "__file__")
""")


def test_a_module_that_names_the_error_of_symbols_imports_none_and_catches_the_real_one() -> None:
    run("""
import types, torch.distributed.tensor
naming = types.ModuleType("naming")
exec("from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode", naming.__dict__)
assert "sympy.core" not in sys.modules
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.experimental import symbolic_shapes
assert ShapeEnv.__module__ == symbolic_shapes.__name__
assert naming.GuardOnDataDependentSymNode is symbolic_shapes.GuardOnDataDependentSymNode
assert naming.GuardOnDataDependentSymNode.__module__ == symbolic_shapes.__name__
""")


def test_answers_about_numbers_are_those_of_the_real_module() -> None:
    run("""
from itertools import product
stand_in = sys.modules["torch.fx.experimental.symbolic_shapes"]
names = sorted(session.backend.lazy_imports._ABOUT_NUMBERS)
answers = {name: getattr(stand_in, name) for name in names}
del sys.modules["torch.fx.experimental.symbolic_shapes"]
import torch.fx.experimental.symbolic_shapes as real
assert real is not stand_in
conditions, sizes = (True, False), (0, 1, 7)
until, since = {"has_hint", "size_hint"}, {"has_guarding_hint", "guarding_hint_or_throw"}
others = until if hasattr(real, "has_guarding_hint") else since
assert {name for name in names if not hasattr(real, name)} == others
for name in sorted(set(names) - others):
    if name in ("sym_and", "sym_or"):
        asked = list(product(conditions, repeat=3)) + list(product(conditions, repeat=1))
    elif name == "sym_eq":
        asked = [*product(sizes, repeat=2), ((1, 2), [1, 2]), ((1, 2), (1, 3)), ((1,), (1, 2)), ((), [])]
        asked += [(((1,), (2, 3)), ((1,), (2, 3))), (((1,), (2, 3)), ((1,), (2, 4)))]
    elif name in {"guard_int", "is_nested_int", "free_unbacked_symbols", *until, *since}:
        asked = [(size,) for size in sizes]
    else:
        asked = [(condition,) for condition in conditions]
    for arguments in asked:
        found, expected = answers[name](*arguments), getattr(real, name)(*arguments)
        assert (list(found) == list(expected) if name == "free_unbacked_symbols" else found == expected), (name, arguments)
""")


def test_what_is_only_decorated_was_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_imports.Compilation, "is_requested", False)

    @lazy_imports.compile_nothing(mode="max-autotune")
    def double(x: int) -> int:
        return 2 * x

    model = lazy_imports.compile_nothing(torch.nn.Identity())
    assert not lazy_imports.Compilation.is_requested
    assert (double(3), double.__name__) == (6, "double")
    assert lazy_imports.Compilation.is_requested
    lazy_imports.Compilation.is_requested = False
    model(torch.zeros(1))
    assert lazy_imports.Compilation.is_requested
    assert not model._forward_pre_hooks
