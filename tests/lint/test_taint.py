"""What is a loss, what is an output, and whether it still has its graph."""

import ast

import pytest

from memlint.source.scopes import scopes
from memlint.source.taint import Kind, Value, Values
from memlint.source.text import Source

LOSS = Value(Kind.LOSS, scalar=True)
OUTPUT = Value(Kind.OUTPUT)


def argument_of_use(text, head="import torch\nimport torch.nn.functional as F\n"):
    """The value of `x` where `use(x)` stands."""
    source = Source.from_text(head + "def train(model, batch, loader, labels):\n" + text, "train.py")
    scope = scopes(source)[-1]
    (call,) = [call for call in scope.calls if isinstance(call.func, ast.Name) and call.func.id == "use"]
    return Values(scope).of(call.args[0])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" use(model(batch))", OUTPUT),
        (" use(self.model.forward(batch))", OUTPUT),
        (" use(F.cross_entropy(model(batch), labels))", LOSS),
        (" use(F.mse_loss(model(batch), labels) / 4)", LOSS),
        (" out = model(batch)\n use(out.loss)", LOSS),
        (" out = model(batch)\n use(out['loss'])", LOSS),
        (" loss, logits = model(batch)\n use(loss)", LOSS),
        (" loss, logits = model(batch)\n use(logits)", OUTPUT),
        (" loss = step(batch)\n loss.backward()\n use(loss)", LOSS),
        (" criterion = torch.nn.BCELoss()\n use(criterion(batch, labels))", LOSS),
        (" fit = torch.nn.BCELoss()\n use(fit(batch, labels))", LOSS),
        (" use(torch.softmax(model(batch), -1))", OUTPUT),
        (" use(model(batch).cpu())", Value(Kind.OUTPUT, on_device=False)),
        (" use(model(batch).detach())", Value(Kind.OUTPUT, graph=False)),
        (" use(model(batch).argmax(-1))", Value(Kind.OUTPUT, graph=False, indices=True)),
        (" _, classes = torch.max(model(batch), 1)\n use(classes)", Value(Kind.OUTPUT, graph=False, indices=True)),
        (" use(model(batch).mean())", Value(Kind.OUTPUT, scalar=True)),
        (" with torch.no_grad():\n  use(model(batch))", Value(Kind.OUTPUT, graph=False)),
        (" with torch.enable_grad():\n  use(model(batch))", OUTPUT),
        (" out = model(batch)\n out = out.detach()\n use(out)", Value(Kind.OUTPUT, graph=False)),
        (" out = model(batch)\n out = out.tolist()\n use(out)", None),
        (" use(F.mse_loss(model(batch), labels).item())", None),
        (" use(float(F.mse_loss(model(batch), labels)))", None),
        (" out = model(batch)\n out = load()\n use(out)", None),
        (" use(model(batch) == labels)", None),
        (" use(tokenizer(batch))", None),
    ],
)
def test_value_of_an_expression(text, value):
    assert argument_of_use(text) == value


def test_a_function_called_without_gradients_elsewhere_in_the_file_makes_no_graph():
    head = "import torch\ndef main():\n with torch.no_grad():\n  train()\n"
    assert argument_of_use(" use(model(batch))", head) == Value(Kind.OUTPUT, graph=False)


def test_loops_count_only_around_what_they_repeat():
    source = Source.from_text("for a in once():\n  for b in twice():\n    deep()\n  else:\n    shallow()\n", "loops.py")
    (scope,) = scopes(source)
    counts = {call.func.id: len(scope.loops(call)) for call in scope.calls}
    assert counts == {"once": 0, "twice": 1, "deep": 2, "shallow": 1}


def test_what_runs_the_backward_of_a_loss_is_no_loss():
    head = "import torch\ndef main():\n pass\n"
    for engine in ("accelerator", "self.fabric", "model"):
        text = f" {engine} = make()\n loss = batch.step()\n {engine}.backward(loss)\n use({{}})"
        assert argument_of_use(text.format("loss"), head) == LOSS
        assert argument_of_use(text.format(f"{engine}.gather(batch)"), head) is None
    assert argument_of_use(" loss = make()\n loss.backward(torch.ones(2))\n use(loss)", head) == LOSS
