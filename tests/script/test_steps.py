"""What is a step of a script, in each way of training: where the second one ends, and what it was seen to be."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from memlint.script.scales import num_scales
from tests.script.isolated import needs
from tests.script.running import run_text, stdout_of

BEGIN = """
import copy
import itertools
import torch
from torch import nn
def linear(): return nn.Linear(64, 64).cuda()
def batch(): return torch.randn(8, 64, device="cuda")
"""


class Way(NamedTuple):
    """A way of training."""

    text: str
    optimizer: str | None = "SGD"
    steps: int = 2
    iterations: int = 1
    """Of its loop that were over when it ended."""
    phase_peaks: tuple[str, ...] = ("forward", "backward", "optimizer")


FAST = {
    "steps that GradScaler skips": Way(
        """
        class Skipping(torch.amp.GradScaler):  # as where gradients are infinite at first
            calls = 0
            def _maybe_opt_step(self, *args, **options):
                self.calls += 1
                return super()._maybe_opt_step(*args, **options) if self.calls > 3 else None

        model, scaler = linear(), Skipping("cuda")
        optimizer = torch.optim.Adam(model.parameters())
        for number in itertools.count():
            with torch.autocast("cuda", torch.float16):
                loss = model(batch()).float().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            print(number, flush=True)
        """,
        "Adam",
        iterations=4,
    ),
    "a first step for the scheduler's sake": Way(
        """
        model = linear()
        optimizer = torch.optim.Adam(model.parameters())
        optimizer.step()
        for number in itertools.count():
            model(batch()).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            print(number, flush=True)
        """,
        "Adam",
        iterations=1,
    ),
    "a CUDA graph of a step, after steps on a stream of their own": Way(
        """
        model, x = linear(), batch()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        def step():
            model(x).mean().backward()
            optimizer.step()
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        print("captured", flush=True)
        for number in itertools.count():
            graph.replay()
            print(number, flush=True)
        """,
        steps=4,
    ),
    "a graphed critic that steps five times as often": Way(
        """
        generator, critic = linear(), linear()
        critic = torch.cuda.make_graphed_callables(critic, (batch().requires_grad_(),))
        of_critic, of_generator = torch.optim.RMSprop(critic.parameters()), torch.optim.Adam(generator.parameters())
        for number in itertools.count():
            of_critic.zero_grad()
            critic(generator(batch()).detach().requires_grad_()).mean().backward()
            of_critic.step()
            if number % 5 == 4:
                of_generator.zero_grad()
                critic(generator(batch())).mean().backward()
                of_generator.step()
            print(number, flush=True)
        """,
        "RMSprop",
        steps=9,  # with three in which PyTorch warms up
        iterations=6,
        phase_peaks=("optimizer",),
    ),
    "a critic that steps five times as often": Way(
        """
        generator, critic = linear(), linear()
        of_critic, of_generator = torch.optim.RMSprop(critic.parameters()), torch.optim.Adam(generator.parameters())
        for number in itertools.count():
            of_critic.zero_grad()
            critic(generator(batch()).detach()).mean().backward()
            of_critic.step()
            if number % 5 == 4:
                of_generator.zero_grad()
                critic(generator(batch())).mean().backward()
                of_generator.step()
            print(number, flush=True)
        """,
        "RMSprop",
        steps=6,
        iterations=6,
    ),
    "an optimizer for each parameter, in the backward": Way(
        """
        model = nn.Sequential(linear(), linear())
        optimizers = {p: torch.optim.AdamW([p]) for p in model.parameters()}
        def step(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(step)
        for number in itertools.count():
            model(batch()).mean().backward()
            print(number, flush=True)
        """,
        "AdamW",
        phase_peaks=("forward", "backward"),
    ),
    "by hand through data": Way(
        """
        model = linear()
        for number in itertools.count():
            model.zero_grad()
            model(batch()).mean().backward()
            for parameter in model.parameters():
                parameter.data.add_(parameter.grad.data, alpha=-0.1)
            print(number, flush=True)
        """,
        None,
        iterations=2,
        phase_peaks=("forward", "backward"),
    ),
    "by hand with accumulation": Way(
        """
        model = linear()
        for number in itertools.count():
            model(batch()).mean().backward()
            if number % 3 == 2:
                with torch.no_grad():
                    torch._foreach_add_(list(model.parameters()), [p.grad for p in model.parameters()], alpha=-0.1)
                    for parameter in model.parameters():
                        parameter.grad = None
            print(number, flush=True)
        """,
        None,
        iterations=6,
        phase_peaks=("forward", "backward"),
    ),
    "tensors without a module": Way(
        """
        weights = [torch.randn(64, 64, device="cuda", requires_grad=True) for _ in range(3)]
        for number in itertools.count():
            x = batch()
            for weight in weights:
                x = (x @ weight).relu()
            x.mean().backward()
            with torch.no_grad():
                for weight in weights:
                    weight -= 0.1 * weight.grad
                    weight.grad = None
            print(number, flush=True)
        """,
        None,
        iterations=2,
        phase_peaks=("backward",),
    ),
    "an image that is trained, and not the network": Way(
        """
        network = linear().requires_grad_(False)
        image = batch().requires_grad_()
        optimizer = torch.optim.Adam([image])
        for number in itertools.count():
            optimizer.zero_grad()
            network(image).square().mean().backward()
            optimizer.step()
            print(number, flush=True)
        """,
        "Adam",
    ),
    "torch.func": Way(
        """
        from torch.func import functional_call, grad
        model = linear()
        parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
        def loss(parameters, x):
            return functional_call(model, parameters, (x,)).square().mean()
        for number in itertools.count():
            gradients = grad(loss)(parameters, batch())
            parameters = {name: parameters[name] - 0.1 * gradients[name] for name in parameters}
            print(number, flush=True)
        """,
        None,
        iterations=2,
        phase_peaks=("forward", "backward"),
    ),
    "a model for each fold": Way(
        """
        for fold in range(5):
            model = linear()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
            model(batch()).mean().backward()
            optimizer.step()
            schedule.step()
            print(fold, flush=True)
        """
    ),
}
SLOW = {
    "torch.autograd.grad": Way(
        """
        model = linear()
        for number in itertools.count():
            gradients = torch.autograd.grad(model(batch()).mean(), list(model.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients):
                    parameter.sub_(gradient, alpha=0.1)
            print(number, flush=True)
        """,
        None,
        iterations=2,
        phase_peaks=("forward", "backward"),
    ),
    "LBFGS": Way(
        """
        model, x = linear(), batch()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss
        for number in itertools.count():
            optimizer.step(closure)
            print(number, flush=True)
        """,
        "LBFGS",
    ),
    "several optimizers in a row": Way(
        """
        model = nn.Sequential(linear(), linear())
        optimizers = [torch.optim.AdamW([p]) for p in model.parameters()]
        for number in itertools.count():
            model(batch()).mean().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            print(number, flush=True)
        """,
        "AdamW",
    ),
    "a teacher, and an average of the student": Way(
        """
        student, teacher = linear(), linear().eval()
        average = copy.deepcopy(student)
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for number in itertools.count():
            x = batch()
            with torch.no_grad():
                target = teacher(x)
            (student(x) - target).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for mean, parameter in zip(average.parameters(), student.parameters()):
                    mean.mul_(0.9).add_(parameter, alpha=0.1)
            print(number, flush=True)
        """,
        phase_peaks=("forward", "backward", "optimizer", "evaluation"),
    ),
    "an optimizer that is never used": Way(
        """
        model = linear()
        unused = torch.optim.Adam(linear().parameters())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number in itertools.count():
            model(batch()).mean().backward()
            optimizer.step()
            print(number, flush=True)
        """,
        steps=20,
        iterations=19,
    ),
}


@pytest.mark.parametrize(
    "way",
    [*FAST.values(), *(pytest.param(way, marks=pytest.mark.slow) for way in SLOW.values())],
    ids=[*FAST, *SLOW],
)
def test_a_step_ends_where_its_way_of_training_says(tmp_path: Path, way: Way) -> None:
    checked = run_text(tmp_path, BEGIN + textwrap.dedent(way.text))
    (workload,) = checked.report.workloads
    assert workload.error is None, workload.error
    assert workload.script is not None
    assert workload.estimate is not None
    assert (workload.script.steps, workload.optimizer) == (way.steps, way.optimizer)
    assert len(stdout_of(checked).splitlines()) == way.iterations
    assert set(way.phase_peaks) <= set(workload.estimate.phase_peaks)
    assert {"parameter"} <= set(workload.estimate.categories)


def test_a_wrapped_model_is_known_by_its_outermost_name(tmp_path: Path) -> None:
    text = """
        class Wrapper(nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module

            def forward(self, x):
                return self.module(x)

        network = Wrapper(nn.DataParallel(Wrapper(linear())))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        while True:
            network(batch()).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    (workload,) = run_text(tmp_path, BEGIN + textwrap.dedent(text)).report.workloads
    assert workload.estimate is not None, workload.error
    names = {each.name for each in workload.estimate.at_peak if each.category == "parameter"}
    assert names == {"network.module.module.module.weight", "network.module.module.module.bias"}


@needs("lightning")
@pytest.mark.slow
def test_manual_optimization_of_lightning_is_steps(tmp_path: Path) -> None:
    text = """
        import lightning
        class Both(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.automatic_optimization = False
                self.generator, self.critic = nn.Linear(64, 64), nn.Linear(64, 64)

            def configure_optimizers(self):
                return [torch.optim.Adam(m.parameters()) for m in (self.critic, self.generator)]

            def training_step(self, x, _number):
                for optimizer in self.optimizers():
                    optimizer.zero_grad()
                    self.manual_backward(self.critic(self.generator(x)).mean())
                    optimizer.step()

        trainer = lightning.Trainer(max_epochs=50, logger=False, enable_progress_bar=False)
        trainer.fit(Both(), torch.utils.data.DataLoader(torch.randn(64, 64), 8))
    """
    (workload,) = run_text(tmp_path, BEGIN + textwrap.dedent(text), settings={"timeout": 200.0}).report.workloads
    assert workload.error is None, workload.error
    assert workload.script is not None
    assert (workload.script.steps, workload.optimizer) == (2, "Adam")


def test_modules_that_prepare_data_on_the_host_are_no_models(tmp_path: Path) -> None:
    text = """
        blur, model = nn.Conv1d(1, 1, 3, padding=1), linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            with torch.no_grad():
                x = blur(torch.randn(8, 1, 64))
            blur(x)
            model(x[:, 0].cuda()).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    (workload,) = run_text(tmp_path, BEGIN + textwrap.dedent(text)).report.workloads
    assert workload.estimate is not None, workload.error
    assert "evaluation" not in workload.estimate.phase_peaks
    assert workload.batch == 8
    assert workload.script is not None
    assert workload.script.evaluations == 0


TIME_FIRST = """
    import argparse, torch
    from torch import nn
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=20)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    model = nn.LSTM(16, 32).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        output, _ = model(torch.randn(35, args.batch_size, 16, device=args.device))
        output.mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        optimizer.zero_grad()
"""


def test_the_batch_of_inputs_whose_time_comes_first_is_that_of_the_settings(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, TIME_FIRST).report.workloads
    assert workload.error is None, workload.error
    assert workload.batch == 20
    (other,) = run_text(tmp_path, TIME_FIRST, "--batch_size", "35").report.workloads
    assert other.batch == 35


BOXES_FIRST = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Conv2d(3, 4, 8, 8)

        def forward(self, batch):
            return self.head(batch["image"]).mean((2, 3))[batch["of_image"]].sub(batch["box"]).abs().mean()

    def together(items):
        boxes = torch.rand(2 * len(items), 4).cuda()
        of_image = torch.arange(len(items)).repeat_interleave(2).cuda()
        return {"box": boxes, "of_image": of_image, "image": torch.stack(items).cuda()}

    model = Detector().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(torch.randn(64, 3, 64, 64), batch_size=8, shuffle=True, collate_fn=together):
        model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_the_batch_is_that_of_the_loader_where_another_input_than_the_first_has_as_many_rows(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, BOXES_FIRST).report.workloads
    assert workload.error is None, workload.error
    assert workload.batch == 8


GRAPHS = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.nodes, self.out = nn.Linear(8, 16), nn.Linear(16, 1)

        def forward(self, x, graph_of):
            return self.out(torch.zeros(6, 16, device=x.device).index_add(0, graph_of, self.nodes(x)))

    def together(sizes):
        sizes = torch.stack(sizes)
        return torch.randn(int(sizes.sum()), 8), torch.arange(len(sizes)).repeat_interleave(sizes)

    model = Net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, graph_of in DataLoader(torch.arange(5, 65), batch_size=6, collate_fn=together):
        model(x.cuda(), graph_of.cuda()).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_the_batch_of_graphs_is_their_number_and_not_that_of_their_nodes(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, GRAPHS).report.workloads
    assert workload.error is None, workload.error
    assert workload.batch == 6


ARRAYS_FIRST = """
    import numpy as np, torch
    from torch import nn
    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(5, 1)

        def forward(self, observed, action=None):
            observed = torch.as_tensor(observed, device="cuda")
            return self.out(observed if action is None else torch.cat([observed, action], 1))

    batch_size = 16
    critic = Critic().cuda()
    optimizer = torch.optim.Adam(critic.parameters())
    while True:
        values = critic(np.zeros((batch_size, 5), np.float32))
        values = values + critic(np.zeros((batch_size, 3), np.float32), torch.zeros(batch_size, 2, device="cuda"))
        values.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_the_batch_is_that_of_the_settings_where_the_first_input_is_no_tensor(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, ARRAYS_FIRST).report.workloads
    assert workload.error is None, workload.error
    assert workload.batch == 16


def test_lazy_modules_get_their_parameters_in_the_first_call(tmp_path: Path) -> None:
    text = """
        import torch
        from torch import nn

        model = nn.Sequential(nn.LazyConv2d(8, 3), nn.Flatten(), nn.LazyLinear(10)).cuda()
        optimizer = None
        for _ in range(2):
            loss = model(torch.randn(16, 3, 10, 10, device="cuda")).sum()
            optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.error is None, workload.error
    assert (workload.batch, workload.script.happened) == (16, "trained")


def test_steps_on_the_host_of_which_a_norm_alone_is_on_the_gpu_are_no_steps_on_it(tmp_path: Path) -> None:
    text = TIME_FIRST.replace("nn.utils.clip", "torch.ones((), device='cuda') * 2\n        nn.utils.clip")
    (workload,) = run_text(tmp_path, text, "--device", "cpu").report.workloads
    assert workload.error is not None
    assert "on the CPU: no model was called on the GPU" in workload.error.message


def test_sparse_gradients_of_bags_are_made_on_the_host_too(tmp_path: Path) -> None:
    text = """
        import torch

        bags = torch.nn.EmbeddingBag(10, 4, mode="sum", sparse=True)
        optimizer = torch.optim.SGD(bags.parameters(), lr=0.1)
        for _ in range(2):
            bags(torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2])).sum().backward()
            assert bags.weight.grad.is_sparse and bags.weight.grad.shape == (10, 4)
            optimizer.step()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.error is not None
    assert workload.error.message == "2 steps were taken, on the CPU: no model was called on the GPU"


def test_a_window_of_a_transform_is_beside_the_signal_on_the_host_too(tmp_path: Path) -> None:
    text = """
        import torch

        layer = torch.nn.Linear(33, 33)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        window = torch.hann_window(64)
        for _ in range(2):
            bands = torch.stft(torch.randn(2, 640), 64, 16, window=window, return_complex=True)
            bands = bands * layer(bands.abs().mT).mT
            sound = torch.istft(bands, 64, 16, window=window)
            torch.stft(sound, 64, 16, 64, window, return_complex=True).abs().sum().backward()
            optimizer.step()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.error is not None
    assert workload.error.message == "2 steps were taken, on the CPU: no model was called on the GPU"


def test_modules_that_another_thread_calls_meanwhile_are_no_part_of_a_step(tmp_path: Path) -> None:
    text = """
        import threading, torch
        from torch import nn

        began, may_end = threading.Event(), threading.Event()

        class Crop(nn.Module):
            def forward(self, image):
                began.set()
                may_end.wait()
                return image[:8]

        threading.Thread(target=lambda: Crop()(torch.zeros(16)), daemon=True).start()
        began.wait()
        model = nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            model(torch.zeros(4, 8, device="cuda")).sum().backward()
            optimizer.step()
        may_end.set()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.error is None
    assert (workload.mode, workload.batch) == ("train", 4)
    assert workload.estimate is not None
    assert workload.estimate.phase_peaks.keys() >= {"forward", "backward"}


def test_calls_under_a_default_device_are_calls_of_a_model(tmp_path: Path) -> None:
    text = """
        import torch
        torch.set_default_device("cuda")
        model = torch.nn.Linear(256, 1024)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            model(torch.randn(16, 256)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.estimate is not None, workload.error
    assert (workload.mode, workload.batch) == ("train", 16)
    assert workload.estimate.categories["parameter"] == (256 + 1) * 1024 * 4
    assert {"forward", "backward", "optimizer"} <= set(workload.estimate.phase_peaks)
    assert not [each.text for each in workload.assumptions if "no model was called" in each.text]


def test_inference_under_a_default_device_is_an_evaluation_of_the_model(tmp_path: Path) -> None:
    text = """
        import torch
        torch.set_default_device(torch.device("cuda"))
        model = torch.nn.Linear(256, 1024)
        with torch.inference_mode():
            model(torch.randn(4, 256))
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.error is None
    assert workload.estimate is not None
    assert "evaluation" in workload.estimate.phase_peaks
    assert workload.estimate.categories["parameter"] == (256 + 1) * 1024 * 4
    assert not [each.text for each in workload.assumptions if "no model was called" in each.text]


def test_functions_of_torchscript_run_also_where_the_program_asks_for_its_older_executor(tmp_path: Path) -> None:
    (workload,) = run_text(
        tmp_path,
        """
        import torch

        torch._C._jit_set_profiling_mode(False)
        torch._C._jit_set_profiling_executor(False)

        @torch.jit.script
        def modulate(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            return x * (1 + scale)

        class Net(torch.nn.Linear):
            def forward(self, x):
                return modulate(super().forward(x), self.weight[0])

        model = Net(8, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            model(torch.randn(2, 8, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    ).report.workloads
    assert workload.error is None
    assert workload.script.steps == 2


def test_the_batch_is_that_of_the_settings_where_the_first_call_chooses_an_action(tmp_path: Path) -> None:
    text = """
        import argparse
        import torch
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch_size", type=int, default=256)
        args = parser.parse_args()
        policy = torch.nn.Linear(17, 6).cuda()
        optimizer = torch.optim.Adam(policy.parameters())
        for _ in range(4):
            action = policy(torch.zeros(1, 17, device="cuda")).cpu().data.numpy()
            loss = policy(torch.zeros(args.batch_size, 17, device="cuda")).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert (workload.mode, workload.batch) == ("train", 256)


ITEMS = """
class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, items):
        return sum(self.layer(rows.cuda()).mean() for rows in items)

model = Reads().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = [torch.randn(3, 64) for _ in range(60)]
for items in torch.utils.data.DataLoader(data, batch_size=6, shuffle=True, collate_fn=list):
    model([rows.cuda() for rows in items]).backward()
    optimizer.step()
"""


def test_the_batch_of_a_list_of_items_is_their_number(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, BEGIN + ITEMS).report.workloads
    assert (workload.error, workload.batch) == (None, 6)


NESTED = """
class Nested:
    def __init__(self, tensors):
        self.tensors = tensors

class Detects(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, samples):
        return self.layer(samples.tensors).mean()

model = Detects().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = [torch.randn(3, 64) for _ in range(60)]
for images in torch.utils.data.DataLoader(data, batch_size=6, shuffle=True):
    model(Nested(images.cuda())).backward()
    optimizer.step()
"""


def test_the_batch_in_an_object_with_tensors_is_that_of_the_settings(tmp_path: Path) -> None:
    (workload,) = run_text(tmp_path, BEGIN + NESTED).report.workloads
    assert (workload.error, workload.batch) == (None, 6)


def test_weights_that_are_set_part_by_part_are_no_mistake(tmp_path: Path) -> None:
    text = """
        import torch
        from torch import nn

        model = nn.GRU(8, 8).cuda()
        for each in (model, nn.GRU(8, 8)):
            for name, parameter in each.named_parameters():
                for part in parameter.chunk(3, 0) if "weight" in name else ():
                    nn.init.orthogonal_(part)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(torch.zeros(3, 4, 8, device="cuda"))[0].sum().backward()
            optimizer.step()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.script is not None
    assert (workload.error, workload.script.happened) == (None, "trained")


SCALES = """
import torch
from torch import nn
from torch.utils.data import DataLoader

model = nn.Conv2d(3, 8, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
rates = [0.5, 1, 1.5]
for images in DataLoader(torch.zeros(64, 3, 32, 32), batch_size=16):
    for rate in rates:
        side = int(round(32 * rate))
        model(nn.functional.interpolate(images.cuda(), size=(side, side))).sum().backward()
        optimizer.step()
        print(rate, flush=True)
"""


def test_a_training_on_several_scales_goes_on_to_the_largest(tmp_path: Path) -> None:
    checked = run_text(tmp_path, SCALES)
    (workload,) = checked.report.workloads
    assert stdout_of(checked).split() == ["0.5", "1", "1.5"]
    assert workload.script is not None
    assert workload.script.steps == 4  # the fourth has smaller images again


def test_a_loop_over_other_things_than_scales_has_none() -> None:
    assert num_scales(None) == 1
    for number in (1, 2, 3):
        assert num_scales(inspect.currentframe()) == 1, number  # it multiplies by nothing
    for rate in (0.5, 1):
        assert num_scales(inspect.currentframe()) == 2 * (rate * 2 > 0)
