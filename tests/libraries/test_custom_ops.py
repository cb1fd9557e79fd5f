"""Operators of others: what is written in Python runs, and what cannot run here is named, never left out silently."""

from __future__ import annotations

import pytest
import torch

from memlint.libraries import custom_ops, own_ops
from memlint.libraries.library import Library, UnknownFunctionError
from tests.libraries.events import on_gpu, simulated

NAMESPACE = "memlint_tests_ops"
LIBRARY = Library("memlint_unknown", distribution="memlint-unknown", version="1")


@pytest.fixture
def namespace(monkeypatch):
    monkeypatch.setattr("torch._library.custom_ops.CustomOpDef.register_kernel", custom_ops._register_kernel)
    monkeypatch.setattr("torch.library.Library.impl", custom_ops._impl)
    monkeypatch.setattr("torch._ops._OpNamespace.__getattr__", own_ops._named)
    with torch.library._scoped_library(NAMESPACE, "DEF") as library:
        yield library


def fake(x):
    return torch.empty_like(x)


def test_a_body_that_needs_what_is_not_known_names_it(namespace):
    @torch.library.custom_op(f"{NAMESPACE}::attend", mutates_args=())
    def attend(x: torch.Tensor) -> torch.Tensor:
        return LIBRARY.unknown("memlint_unknown.ops.attention")(x)

    attend.register_fake(fake)
    with simulated() as seen:
        x = on_gpu(4, grad=False)
        for _ in range(2):
            with pytest.raises(
                UnknownFunctionError, match=r"memlint_unknown\.ops\.attention is used, and memlint-unknown is not"
            ):
                attend(x)
        # Said as well: a program that catches the error goes on with something else.
        assert len(seen.assumptions) == 1
        assert "memlint_unknown.ops.attention" in seen.assumptions[0]


def test_a_kernel_in_python_for_cuda_runs(namespace):
    namespace.define("doubled(Tensor x) -> Tensor")
    torch.library.register_fake(f"{NAMESPACE}::doubled", fake, lib=namespace)

    def doubled(x):
        scratch = torch.empty(1 << 20, device=x.device)
        return x * 2 + scratch[0]

    namespace.impl("doubled", doubled, "CUDA")
    with simulated() as seen:
        x = on_gpu(4, dtype=torch.float32, grad=False)
        seen.begin()
        getattr(torch.ops, NAMESPACE).doubled(x)
        assert seen.peak > 4 << 20
        assert not seen.assumptions


def test_one_of_which_the_shapes_alone_are_known_is_named(namespace):
    def compiled(x):
        raise OSError("no such library")

    for name in ("loaded", "absent"):
        namespace.define(f"{name}(Tensor x) -> Tensor")
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=namespace)
    namespace.impl("loaded", compiled, "CUDA")
    with simulated() as seen:
        x = on_gpu(4, grad=False)
        for _ in range(2):
            for name in ("loaded", "absent"):
                assert getattr(getattr(torch.ops, NAMESPACE), name)(x).is_cuda
        assert seen.assumptions == [
            f"memory that the kernel of {NAMESPACE}::{name} takes for itself is not counted: it has none that runs here"
            for name in ("loaded", "absent")
        ]


def test_one_that_is_not_defined_is_named_with_what_to_write(namespace):
    ops = getattr(torch.ops, NAMESPACE)
    assert not hasattr(ops, "missing")
    with pytest.raises(UnknownFunctionError, match=rf"torch\.ops\.{NAMESPACE}\.missing is not defined here") as error:
        ops.missing(3)
    assert f'memlint.op("{NAMESPACE}::missing", shapes=' in error.value.hint
    with pytest.raises(AttributeError, match="aten"):
        torch.ops.aten.missing(3)
