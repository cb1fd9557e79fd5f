"""Nested tensors of the older, strided layout are refused where they are made.

PyTorch's C++ asks each for its sizes with kernels that only CPU and CUDA have, also where it cannot raise: that would
end the process. Those of layout torch.jagged are made of ordinary tensors by PyTorch's Python and need nothing here.
"""

from __future__ import annotations

from typing import Any, NoReturn

from memlint.accelerator.registration import KEY, implement, overload
from memlint.base.errors import TraceError

_MAKERS = (
    "_nested_tensor_from_tensor_list",
    "_nested_view_from_buffer",
    "_nested_from_padded",
    "_nested_tensor_from_mask",
)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise TraceError(
        "nested tensors of layout torch.strided cannot be traced, nor attention on those of layout torch.jagged, "
        "which makes them",
        "Use layout=torch.jagged, and padded tensors with a mask for attention.",
    )


for _name in _MAKERS:
    implement(overload(_name), KEY, _refuse)
