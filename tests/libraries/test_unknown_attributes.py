"""What a class of a stand-in lacks is an AttributeError to the program, and named where the program ends of it."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

import pytest
import torch
from memlint_libraries import mamba
from memlint_libraries.spconv import SparseConvTensor, library

from memlint.base.errors import WorkloadError
from memlint.libraries.installation import LIBRARIES
from memlint.libraries.library import UnknownAttributeError, UnknownFunctionError
from memlint.libraries.plugins import BUILT_IN, GROUP
from memlint.libraries.unknown_attributes import unknown_attribute
from memlint.script.ending import ending_of
from memlint.tracing.workload_errors import workload_errors
from memlint.workloads.user_errors import reported

BROUGHT = [each for each in entry_points(group=GROUP) if each.module.partition(".")[0] == BUILT_IN]
MODULES = library.modules["spconv.pytorch"]


class Mine(MODULES["SparseModule"]):
    pass


def _error_of(owner, name):
    with pytest.raises(AttributeError) as raised:
        getattr(owner, name)
    return raised.value


@pytest.mark.parametrize("how", [workload_errors, lambda: reported("it cannot be built")])
def test_a_program_that_ends_of_it_used_what_is_not_known(how):
    name = r"spconv\.pytorch\.SparseConvTensor\.sparity of spconv is used, and it is not known"
    with pytest.raises(UnknownAttributeError, match=name), how():
        SparseConvTensor.sparity()
    with pytest.raises(WorkloadError, match="no attribute 'sparity'"), how():
        torch.nn.Linear(1, 1).sparity()


def test_a_script_that_ends_of_it_is_told_what_is_known():
    ending = ending_of(_error_of(MODULES["SubMConv3d"](1, 1, 3), "groups_of_channels"))
    assert ending.reason == "spconv.pytorch.SubMConv3d.groups_of_channels of spconv is used, and it is not known"
    assert ending.is_failure
    assert "2.3.8" in ending.hint


def test_a_class_of_the_programs_own_may_have_made_the_mistake_itself():
    error = unknown_attribute(_error_of(Mine(), "layer"))
    assert str(error) == (
        "'Mine' object has no attribute 'layer', and it is not known whether spconv.pytorch.SparseModule of spconv, "
        "its base, has it"
    )
    assert unknown_attribute(_error_of(torch, "layer")) is None
    assert unknown_attribute(ValueError("layer")) is None


def test_who_asks_is_told_that_it_is_not_there():
    assert not hasattr(SparseConvTensor, "sparity")
    assert getattr(Mine(), "layer", 3) == 3


def test_classes_of_every_stand_in_are_found():
    known = [
        value
        for each in (*LIBRARIES, *(entry.load() for entry in BROUGHT))
        for values in each.modules.values()
        for value in values.values()
        if isinstance(value, type) and type(value).__name__ != "_Unknown"
    ]
    assert len(known) > 50
    for value in known:
        assert str(unknown_attribute(_error_of(value, "not_there"))).endswith(" is used, and it is not known")


def test_a_library_whose_own_python_would_run_is_said_to_be_missing_where_it_is_not_installed(monkeypatch):
    monkeypatch.delitem(sys.modules, "mamba_ssm", raising=False)
    scan = mamba.library.unknown("mamba_ssm.ops.selective_scan_interface.selective_scan_fn")
    with pytest.raises(UnknownFunctionError, match="is used, and mamba-ssm is not installed") as caught:
        scan(1)
    assert caught.value.hint.startswith(f"Install it where memlint runs, {sys.prefix}: pip install mamba-ssm. Or say")
