"""Where the blocks of a model are called: the line that a checkpoint goes into."""

import pytest
from memlint_rules.support.block_calls import call_of_blocks

from memlint.memory.records import Frame
from tests.rules.records import MIB, Script

MODEL = """\
class Other(nn.Module):
    def forward(self, x):
        for block in self.h:
            x = block(x)
        return x

class Model(nn.Module):
    def forward(self, x):
        {}
            {}
        return x
"""
MODULES = [("", "Model"), ("transformer", "ModuleDict"), ("transformer.h", "ModuleList"), ("transformer.h.0", "Block")]


def call(tmp_path, loop, line, modules=MODULES):
    file = tmp_path / "model.py"
    file.write_text(MODEL.format(loop, line))
    script = Script(modules=modules)
    script.step()
    library = Frame("/usr/lib/python3/site-packages/layers.py", 4, "forward")
    script.kernel("aten.mm.default", frame=library._replace(caller=Frame(str(file), 4, "forward")))
    script.make(MIB)
    frame = call_of_blocks(script.trace(), ["transformer.h.0"])
    assert frame is None or frame.path == str(file)
    return frame and frame.line


@pytest.mark.parametrize(
    ("loop", "line"),
    [
        ("for block in self.transformer.h:", "x = block(x)"),
        ("for i, block in enumerate(self.transformer['h'].h):", "x = x + block(x)"),
        ("for i in range(12):", "x = self.transformer.h[i](x)"),
        ("if self.training:", "x = self.h(x)"),
        ("for attention, mlp in self.transformer.h:", "x = mlp(attention(x))"),
        ("for block in self.transformer.h:", "x = block.forward(x)"),
    ],
)
def test_the_line_that_calls_the_blocks_is_found_in_the_class_that_has_them(tmp_path, loop, line):
    assert call(tmp_path, loop, line) == 10


def test_nothing_is_said_where_the_text_shows_no_call(tmp_path):
    assert call(tmp_path, "for name in self.names:", "x = getattr(self, name)(x)") is None
    assert call(tmp_path, "for block in self.transformer.h:", "x = block(x)", [("", "Net"), *MODULES[1:]]) is None


def test_a_class_that_derives_from_the_one_with_the_loop_is_followed_to_it(tmp_path):
    own = (
        "        return x\n\nclass Large(Model):\n    def forward(self, x, y):\n        return super().forward(x + y)\n"
    )
    file = tmp_path / "derived.py"
    file.write_text(MODEL.format("for block in self.h:", "x = block(x)").rpartition("        return x\n")[0] + own)
    script = Script(modules=[("", "Large"), ("h", "ModuleList"), ("h.0", "Block")])
    script.step()
    script.kernel("aten.mm.default", frame=Frame(str(file), 4, "forward"))
    script.make(MIB)
    assert call_of_blocks(script.trace(), ["h.0"]).line == 10


def test_blocks_in_a_list_and_beside_it_are_called_where_the_list_is_or_by_their_own_name(tmp_path):
    file = tmp_path / "model.py"
    file.write_text(MODEL.format("x = self.first(x)\n        for block in self.h:", "x = block(x)"))
    script = Script(modules=[("", "Model"), ("first", "Block"), ("h", "ModuleList"), ("h.0", "Block")])
    script.step()
    script.kernel("aten.mm.default", frame=Frame(str(file), 4, "forward"))
    script.make(MIB)
    assert call_of_blocks(script.trace(), ["first", "h.0"]).line == 11
    assert call_of_blocks(script.trace(), ["first"]).line == 9
