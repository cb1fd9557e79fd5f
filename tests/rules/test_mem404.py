"""MEM404 on loops as people write them."""

from textwrap import dedent

import pytest
from memlint_rules.m4_training_loop.mem404_eval_without_no_grad import EvalWithoutNoGrad

from memlint.source.text import Source


def lines(text):
    source = Source.from_text("import torch\n" + dedent(text), "train.py")
    return [finding.line for finding in EvalWithoutNoGrad().check(source)]


BAD = {
    "named like an evaluation, without eval": """
        def evaluate(net, val_loader):
            for x, y in val_loader:
                total += (net(x) - y).abs().sum().item()
    """,
    "a method": """
        class Trainer:
            def validate(self):
                self.model.eval()
                for batch in self.loader:
                    self.log(self.model(batch))
    """,
    "a comprehension": """
        def scores(model, images):
            model.eval()
            return [model(image) for image in images]
    """,
    "a script": """
        model = Net().cuda().eval()
        for image in images:
            save(model(image))
    """,
    "eval at the end of a chain": """
        def run(device, frames):
            model = load().to(device).eval()
            for frame in frames:
                show(model(frame))
    """,
    "a while loop": """
        def generate(model, tokens):
            model.eval()
            while len(tokens) < 100:
                tokens.append(model(tokens).argmax(-1))
    """,
    "forward called by name": """
        def run(model, loader):
            model.eval()
            for x in loader:
                model.forward(x)
    """,
    "train(False)": """
        def run(model, loader):
            model.train(False)
            for x in loader:
                model(x)
    """,
    "guard around something else": """
        def run(model, loader):
            model.eval()
            with torch.no_grad():
                warm_up(model)
            for x in loader:
                model(x)
    """,
    "guard that is switched on": """
        def run(model, loader):
            model.eval()
            with torch.set_grad_enabled(True):
                for x in loader:
                    model(x)
    """,
    "autocast is no guard": """
        def run(model, loader, amp_ctx):
            model.eval()
            with torch.autocast("cuda"), amp_ctx:
                for x in loader:
                    model(x)
    """,
    "a command": """
        import click

        @click.command()
        def main(path):
            model = load(path)
            model.eval()
            for x in read(path):
                print(model(x))
    """,
    "checkpointing of the optimizer after the loop": """
        def fit(model, loader, optimizer):
            for epoch in range(3):
                train_one_epoch(model, optimizer)
                model.eval()
                for x in loader:
                    total += model(x).sum().item()
                torch.save({"optimizer": optimizer.state_dict()}, "last.pt")
    """,
}

GOOD = {
    "no_grad around the loop": """
        def evaluate(model, loader):
            model.eval()
            with torch.no_grad():
                for x in loader:
                    model(x)
    """,
    "inference_mode inside the loop": """
        def evaluate(model, loader):
            model.eval()
            for x in loader:
                with torch.inference_mode():
                    y = model(x)
    """,
    "an imported guard": """
        from torch import no_grad as off

        def evaluate(model, loader):
            model.eval()
            with off():
                for x in loader:
                    model(x)
    """,
    "set_grad_enabled with a variable": """
        def run(model, loader, phase):
            model.train() if phase == "train" else model.eval()
            for x in loader:
                with torch.set_grad_enabled(phase == "train"):
                    model(x)
    """,
    "switched off by a plain call": """
        torch.set_grad_enabled(False)
        model.eval()
        for x in loader:
            model(x)
    """,
    "decorated": """
        @torch.no_grad()
        def evaluate(model, loader):
            model.eval()
            for x in loader:
                model(x)
    """,
    "decorated by something unknown": """
        @app.task
        def evaluate(model, loader):
            model.eval()
            for x in loader:
                model(x)
    """,
    "called under a guard": """
        def evaluate(model, loader):
            model.eval()
            for x in loader:
                model(x)

        def main():
            with torch.no_grad():
                evaluate(net, loader)
    """,
    "inside a decorated function": """
        @torch.inference_mode()
        def main(model, loader):
            def run():
                model.eval()
                for x in loader:
                    model(x)
            run()
    """,
    "a context kept in a variable": """
        def evaluate(model, loader, training):
            context = torch.enable_grad() if training else torch.no_grad()
            model.eval()
            with context:
                for x in loader:
                    model(x)
    """,
    "training": """
        def train(model, loader, optimizer):
            model.train()
            for x in loader:
                loss = model(x)
                loss.backward()
                optimizer.step()
    """,
    "training with frozen statistics": """
        def train(model, loader, optimizer):
            model.eval()
            for x in loader:
                optimizer.zero_grad()
                model(x).sum().backward()
    """,
    "back to training before the loop": """
        def fit(model, loader):
            model.eval()
            report(model)
            model.train()
            for x in loader:
                losses.append(model(x))
    """,
    "an adversarial attack": """
        def evaluate(model, loader):
            model.eval()
            for x in loader:
                x.requires_grad_()
                attack(torch.autograd.grad(model(x).sum(), x))
    """,
    "gradients after the loop": """
        def evaluate(model, loader):
            model.eval()
            total = 0
            for x in loader:
                total = total + model(x).sum()
            total.backward()
    """,
    "frozen parameters": """
        def evaluate(model, loader):
            for p in model.parameters():
                p.requires_grad = False
            model.eval()
            for x in loader:
                model(x)
    """,
    "a Lightning hook": """
        class Net(pl.LightningModule):
            def on_validation_epoch_end(self):
                self.model.eval()
                for x in self.loader:
                    self.model(x)
    """,
    "a single call": """
        def predict(model, x):
            model.eval()
            return model(x)
    """,
    "a unit test without a loader": """
        def test_shapes():
            model = Net()
            for size in (1, 2):
                assert model(torch.zeros(size)).shape == (size,)
    """,
    "pandas": """
        def evaluate(frame, data):
            for row in data:
                frame.eval("a + b")
    """,
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_loops_that_build_a_graph_for_nothing_are_reported_once(text):
    assert len(lines(text)) == 1


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_guarded_training_and_differentiating_loops_are_not_reported(text):
    assert lines(text) == []


def test_the_loop_is_the_place():
    assert lines(BAD["a method"]) == [6]


def test_two_loops_are_two_findings():
    text = """
        def evaluate(model, a, b):
            model.eval()
            for x in a:
                model(x)
            for x in b:
                model(x)
    """
    assert lines(text) == [5, 7]


def test_a_file_without_torch_is_not_looked_at():
    text = "def evaluate(model, loader):\n    model.eval()\n    for x in loader:\n        model(x)  # as torch does\n"
    assert list(EvalWithoutNoGrad().check(Source.from_text(text, "a.py"))) == []


def test_long_expressions_do_not_overflow_the_stack():
    text = "model.eval()\nfor x in data:\n    y = model(x)" + " + 1" * 900 + "\n"
    assert lines(text) == [3]


def test_what_runs_under_enable_grad_is_not_guarded():
    text = """
        def evaluate(model, loader):
            for x in loader:
                print(model(x))

        def main(model, loader):
            with torch.{}():
                evaluate(model, loader)
    """
    assert lines(text.format("enable_grad")) == [4]
    assert lines(text.format("no_grad")) == []


def test_the_case_of_a_name_does_not_matter():
    assert lines("""
        def Evaluate(model, loader):
            for x in loader:
                print(model(x))
    """) == [4]
