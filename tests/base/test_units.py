"""Sizes and dtypes, as people write them."""

from __future__ import annotations

import pytest

from memlint.base.errors import UsageError
from memlint.base.units import DTYPES, dtype_named, parse_nbytes, tensor_dtype_name


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32"), ("float", "float32"), ("half", "float16")),
        *(("torch.bfloat16", "bfloat16"), ("torch.half", "float16"), ("torch.float", "float32"), ("BF16", "bfloat16")),
        *(("bf16-amp", "bf16-amp"), ("float32", "float32"), ("8bit", "int8"), ("4bit", "nf4"), ("NF4", "nf4")),
    ],
)
def test_a_dtype_has_the_names_that_pytorch_and_people_give_it(name, dtype):
    assert dtype_named(name) == dtype


def test_a_dtype_of_no_step_is_refused_with_those_that_there_are():
    with pytest.raises(UsageError, match="dtype 'bf17' is unknown") as caught:
        dtype_named("bf17")
    assert caught.value.hint == "Did you mean bf16? Write one of " + ", ".join(DTYPES) + "."
    with pytest.raises(UsageError, match="dtype 'int' is unknown"):
        dtype_named("int")


def test_tensors_of_whole_numbers_have_pytorchs_second_names_too():
    assert [tensor_dtype_name(name) for name in ("long", "torch.int", "double", "uint8")] == [
        *("int64", "int32", "float64", "uint8")
    ]


def test_a_small_number_without_a_unit_is_no_size():
    with pytest.raises(UsageError, match=r"'24' has no unit: 24GiB\?") as caught:
        parse_nbytes("24")
    assert caught.value.hint == "Write 24GiB or 24MiB."
    assert (parse_nbytes("24 B"), parse_nbytes("1048576"), parse_nbytes("24GiB")) == (24, 1048576, 24 * 2**30)
