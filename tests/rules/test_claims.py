"""What rules of source text say of memory, held against runs of both programs."""

import pytest
import torch
from torch import nn

from memlint.memory.devices import device_named
from memlint.memory.timeline import Timeline, live
from memlint.tracing.recorder import trace_program

MIB = 2**20
WEIGHT = 16 * MIB
DEPTH = 8


def layers():
    return nn.Sequential(*(nn.Linear(2048, 2048, bias=False) for _ in range(DEPTH)))


class Run:
    def __init__(self, body):
        self.step = lambda: body(self)

    def setup(self):
        self.model, self.teacher = layers().cuda(), layers().cuda()
        self.x = torch.randn(2048, 2048, device="cuda")


def peak(body):
    return max(live(Timeline.of(trace_program(Run(body), device_named("a100-80gb")).trace)))


def two_backwards(run):
    output = run.model(run.x)
    first, second = output.mean(), output.square().mean()
    first.backward(retain_graph=True)
    second.backward()
    run.model.zero_grad()


def one_backward(run):
    output = run.model(run.x)
    (output.mean() + output.square().mean()).backward()
    run.model.zero_grad()


def retained(run):
    run.loss = run.model(run.x).mean()
    run.loss.backward(retain_graph=True)
    run.model.zero_grad()


def freed(run):
    run.loss = run.model(run.x).mean()
    run.loss.backward()
    run.model.zero_grad()


def detached_teacher(run):
    target = run.teacher(run.x)
    (run.model[:2](run.x) - target.detach()).square().mean().backward()
    run.model.zero_grad()


def guarded_teacher(run):
    with torch.no_grad():
        target = run.teacher(run.x)
    (run.model[:2](run.x) - target).square().mean().backward()
    run.model.zero_grad()


@pytest.mark.parametrize(
    ("worse", "better", "nbytes"),
    [
        pytest.param(retained, freed, (DEPTH - 2) * WEIGHT, id="MEM403: a graph that is kept to the next forward"),
        pytest.param(two_backwards, one_backward, WEIGHT, id="MEM403: a graph that is kept for a second loss"),
        pytest.param(detached_teacher, guarded_teacher, (DEPTH - 2) * WEIGHT, id="MEM406: a teacher that is detached"),
    ],
)
def test_the_corrected_step_takes_less(worse, better, nbytes):
    # A layer saves as many bytes here as its weight has; the peak moves, so not all of them are gained.
    assert peak(worse) - peak(better) >= nbytes


def test_a_cast_on_the_gpu_takes_four_bytes_per_parameter():
    def setting_up(build):
        run = Run(lambda _: None)
        run.setup = lambda: setattr(run, "model", build(layers()))
        return max(live(Timeline.of(trace_program(run, device_named("a100-80gb")).trace)))

    whole = DEPTH * WEIGHT
    assert setting_up(lambda model: model.cuda().half()) >= whole
    assert setting_up(lambda model: model.half().cuda()) == whole // 2
    assert setting_up(lambda model: model.to("cuda", torch.bfloat16)) == whole // 2


def test_only_a_tensor_that_is_allocated_first_takes_its_bytes_once():
    part, parts = 4 * MIB, 16

    def grown(run):
        found = torch.empty(0, 1024, device="cuda")
        for _ in range(parts):
            found = torch.cat([found, torch.ones(1024, 1024, device="cuda")])

    def listed(run):
        torch.cat([torch.ones(1024, 1024, device="cuda") for _ in range(parts)])

    def filled(run):
        found = torch.empty(parts * 1024, 1024, device="cuda")
        for i in range(parts):
            found[i * 1024 : (i + 1) * 1024] = torch.ones(1024, 1024, device="cuda")

    nothing = peak(lambda _: None)
    assert [peak(body) - nothing for body in (grown, listed, filled)] == [
        2 * parts * part,
        2 * parts * part,
        (parts + 1) * part,
    ]
