"""The call of a model in the text of its training loop: arguments that it is fed, methods in place of forward."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from memlint.source.fed_calls import FedCall, FedInput, fed_call
from memlint.source.text import Source


def call_in(text: str, *makers: str) -> FedCall | None:
    return fed_call([Source.from_text(textwrap.dedent(text), "/project/train.py")], makers or ("Net",))


@pytest.mark.parametrize(
    ("loop", "inputs"),
    [
        ("logits, loss = model(X, Y)", {"0": "X", "1": "Y"}),
        ("loss = criterion(net(batch['image'].to(device), mask=batch['mask']), y)", {"0": "image", "mask": "mask"}),
        ("loss = model.module(x, None, t=t).mean()", {"0": "x", "t": "t"}),
        ("loss = model.forward(images[:, 0])", {"0": "images"}),
    ],
)
def test_the_arguments_of_the_call_before_backward_are_fed(loop: str, inputs: dict[str, str]) -> None:
    found = call_in(f"def train(model, net):\n    for batch in loader:\n        {loop}\n        loss.backward()\n")
    assert found is not None
    assert ({key: each.name for key, each in found.inputs.items()}, found.line) == (inputs, 3)


def test_the_name_that_the_class_is_assigned_to_is_the_models_and_no_other_is() -> None:
    text = """
    netG, netD = None, 0
    netG = DataParallel(Generator(64)).cuda()
    netD = Critic()
    for real in loader:
        (netD(real, 1) + netD(netG(noise), 0)).backward()
    """
    generator, critic = call_in(text, "Generator"), call_in(text, "Critic")
    assert generator is not None
    assert critic is not None
    assert [each.name for each in generator.inputs.values()] == ["noise"]
    assert [each.name for each in critic.inputs.values()] == ["real", ""]


def test_a_function_that_gives_the_model_is_none() -> None:
    text = """
    net = make_net(args, num_nodes, num_features, num_classes)
    for epoch in range(3):
        net(x, edges).mean().backward()
    """
    found = call_in(text, "make_net")
    assert found is not None
    assert [each.name for each in found.inputs.values()] == ["x", "edges"]


def test_calls_of_evaluation_and_those_without_gradients_are_not_the_loops() -> None:
    text = """
    def evaluate(model):
        return model(x, y, z).backward()

    def train(model):
        with torch.no_grad():
            model(dummy, dummy, dummy)
        model(x).backward()
    """
    found = call_in(text)
    assert found is not None
    assert [each.name for each in found.inputs.values()] == ["x"]


def test_nothing_is_known_of_arguments_that_are_not_written_there() -> None:
    assert call_in("for batch in loader:\n    model(**batch).loss.backward()\n") is None
    assert call_in("for batch in loader:\n    model(*batch).loss.backward()\n") is None
    assert call_in("trainer = Trainer(model)\ntrainer.fit()\n") is None


def test_expressions_say_the_dtype_and_that_there_is_one_dimension() -> None:
    text = """
    for x, y in loader:
        flat = y.reshape(-1)
        model(x.float(), flat, F.one_hot(y, 10).float().to(device), y.long()).backward()
    """
    found = call_in(text)
    assert found is not None
    assert list(found.inputs.values()) == [
        FedInput("x", "float32"),
        FedInput("flat", "", is_flat=True),
        FedInput("y", "float32"),
        FedInput("y", "int64"),
    ]


class Recorded:
    """A model whose methods return their own names and what they were given."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **named: (name, *args, *named.values())


METHODS = """
def train(model, optimizer):
    for batch in tqdm(loader):
        model.train()
        source = batch["source"].to(device)
        memory = model.encode(source, batch["source_mask"])
        hidden = model.decode(memory, batch["source_mask"], batch["target"].to(device))
        logits = model.project(hidden)
        with torch.no_grad():
            seen = model.generate(source)
        loss = criterion(logits, batch["label"])
        loss.backward()
"""


def test_methods_from_which_the_loss_is_computed_are_the_step() -> None:
    found = call_in(METHODS)
    assert found is not None
    assert found.methods == ("encode", "decode", "project")
    assert list(found.inputs) == ["source", "source_mask", "target"]
    namespace: dict[str, Any] = {}
    exec(found.code, namespace)
    memory = ("encode", "s", "m")
    assert namespace["forward"](Recorded(), "s", "m", "t") == ("project", ("decode", memory, "m", "t"))


@pytest.mark.parametrize(
    ("loop", "result"),
    [
        ("loss = model.training_losses(x_start, t)['loss'].mean()", ("training_losses", 1, 2)),
        ("loss = loss_of(model.encode_image(image), model.encode_text(text))", None),
        ("mu, var = model.encode(x)\n        out = model.decode(mu, z=var)\n        loss = mse(out, x)", None),
    ],
)
def test_outputs_that_no_method_takes_further_are_returned(loop: str, result: object) -> None:
    found = call_in(f"def step(model):\n    for b in loader:\n        {loop}\n        loss.backward()\n")
    assert found is not None
    namespace: dict[str, Any] = {}
    exec(found.code, namespace)

    class Pairs(Recorded):
        def encode(self, x: object) -> tuple[str, object]:
            return "mu", x

    got = namespace["forward"](Pairs(), *range(1, 1 + len(found.inputs)))
    expected = {"encode_image": (("encode_image", 1), ("encode_text", 2)), "encode": ("decode", "mu", 1)}
    assert got == (result or expected[found.methods[0]])


def test_a_helper_that_the_loop_calls_and_a_training_step_are_read_too() -> None:
    helper = "def losses(model, x):\n    return model(x, labels)\n\ndef run(model):\n    losses(model, x).backward()\n"
    found = call_in(helper)
    assert found is not None
    assert list(found.inputs) == ["0", "1"]
    module = """
    class Lit(LightningModule):
        def __init__(self):
            self.unet = Net(3)
        def training_step(self, batch, index):
            return self.unet(batch["noisy"], batch["times"])
    """
    found = call_in(module)
    assert found is not None
    assert [each.name for each in found.inputs.values()] == ["noisy", "times"]


def test_a_column_has_a_second_dimension_of_size_1() -> None:
    found = call_in("for x, t in loader:\n    model(x, t.view(-1, 1), t.view(-1)).sum().backward()\n")
    assert found is not None
    assert [(each.is_column, each.is_flat) for each in found.inputs.values()] == [
        (False, False),
        (True, False),
        (False, True),
    ]
