"""Extensions that are compiled when a program runs."""

import pytest
from torch.utils import cpp_extension

from memlint.libraries import extensions


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """Names of the extensions that would have been compiled."""
    names = []
    monkeypatch.setattr(cpp_extension, "_jit_compile", lambda name, *_args, **_kwargs: names.append(name))
    for name in ("load", "load_inline"):
        monkeypatch.setattr(cpp_extension, name, getattr(cpp_extension, name))
    extensions.install()
    return names


@pytest.mark.parametrize(
    "use",
    [
        lambda: cpp_extension.load("fused", ["fused.cpp", "fused_kernel.cu"]),
        lambda: cpp_extension.load(name="fused", sources="fused.cu"),
        lambda: cpp_extension.load("fused", ["fused.cpp"], with_cuda=True),
        lambda: cpp_extension.load_inline("fused", "", "__global__ void fused() {}"),
        lambda: cpp_extension.load_inline("fused", "", cuda_sources=["__global__ void fused() {}"]),
    ],
)
def test_kernels_of_cuda_are_not_compiled(use, compiled):
    with pytest.raises(OSError, match="the extension fused is not compiled: its kernels need a GPU") as caught:
        use()
    assert caught.value.__notes__ == ["Describe its functions with memlint.op, as docs/libraries.md says."]
    assert compiled == []


def test_an_extension_without_kernels_is_compiled(compiled):
    cpp_extension.load("host", ["host.cpp"])
    assert compiled == ["host"]
