"""Rules that look at a traced step, on Traces made by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from memlint_rules.m0_budget.mem010_over_budget import OverBudget
from memlint_rules.m1_activations.mem101_missing_activation_checkpointing import MissingActivationCheckpointing
from memlint_rules.m1_activations.mem107_dead_at_peak_reference import DeadAtPeakReference
from memlint_rules.m1_activations.mem119_flash_attention_unused import FlashAttentionUnused
from memlint_rules.m1_activations.mem121_outputs_of_every_layer import OutputsOfEveryLayer
from memlint_rules.m2_parameters.mem204_optimizer_step_temporaries import OptimizerStepTemporaries
from memlint_rules.m3_dtype_layout.mem306_dense_should_be_sparse import DenseShouldBeSparse
from memlint_rules.m3_dtype_layout.mem310_nchw_conv_on_tensor_cores import NchwConvOnTensorCores

import memlint
from memlint.lint.rule import Confidence, Severity, place_of
from memlint.memory.records import Category, Frame, Phase
from memlint.memory.retention import Holder
from memlint.whatif.changes import (
    AttentionImplementation,
    ChannelsLast,
    CheckpointModules,
    OnlyTheOutput,
    OptimizerImplementation,
)
from memlint.whatif.changes.attention_implementation import most_saved_by_flash
from tests.rules.records import MIB, FakeContext, Script, at, channels_last


def test_a_finding_about_an_installed_model_stands_where_the_project_declares_it(tmp_path):
    file = tmp_path / "declared.py"
    file.write_text("import timm\n\n\ndef memlint_workload(batch):\n    return timm.create_model('x'), {}\n")
    workload = SimpleNamespace(path=str(file), qualname="memlint_workload")
    library = Frame("/venv/lib/python3.11/site-packages/timm/layers/mlp.py", 41, "forward")
    context = SimpleNamespace(workload=workload)
    assert place_of(library, context) == {"path": str(file), "line": 4, "library": library}
    called = library._replace(caller=Frame(str(file), 5, "memlint_workload"))
    assert place_of(called, context) == {"path": str(file), "line": 5, "library": called}
    workload.path = ""  # nothing of the project is there to be named
    assert place_of(library, context)["path"] == library.path


# MEM010


def one_allocation(nbytes):
    script = Script()
    script.step()
    script.kernel("aten.mm.default", frame=at(7))
    script.make(nbytes // 4, category=Category.ACTIVATION, frame=at(7))
    return script.trace()


def over_budget(nbytes, **options):
    context = FakeContext(one_allocation(nbytes), **options)
    return list(OverBudget().check(context)), context


def test_a_step_over_its_budget_says_by_how_much_and_what_holds_most():
    (finding,), context = over_budget(512 * MIB, budget=600 * MIB)
    over = context.estimate.device.estimate - 600 * MIB
    assert finding.nbytes == over > 0
    assert finding.severity is Severity.ERROR
    assert "over the budget of 600.0 MiB" in finding.message
    assert "activation: 512.0 MiB" in finding.message
    assert (finding.path, finding.line) == ("/home/user/model.py", 7)


def test_the_memory_of_the_gpu_is_the_limit_without_a_budget():
    (finding,), context = over_budget(90 * 2**30)
    assert context.device.title in finding.message
    assert over_budget(8 * 2**30)[0] == []


def test_a_batch_that_nobody_named_is_said():
    context = FakeContext(one_allocation(90 * 2**30))
    context.assumed, context.workload.batch = frozenset({"batch"}), 8
    (finding,) = OverBudget().check(context)
    assert "This rests on batch" in finding.message


def test_the_host_has_no_limit_of_its_own():
    assert over_budget(900 * 2**30, gpu="cpu")[0] == []
    assert len(over_budget(900 * 2**30, gpu="cpu", budget=2**30)[0]) == 1


# MEM101


def blocks(count, *, inner=8, handed_on=1, phase=Phase.BACKWARD, kind="Block"):
    """`count` blocks that save `inner` MiB inside and hand `handed_on` MiB to the next; the peak is in `phase`."""
    modules = [("", "Model"), ("blocks", "ModuleList")]
    for i in range(count):
        modules += [(f"blocks.{i}", kind), (f"blocks.{i}.mlp", "Linear")]
    script = Script(modules=modules)
    script.step()
    script.kernel("aten.embedding.default", frame=at(3))
    hidden = script.make(handed_on * MIB // 4, category=Category.ACTIVATION, frame=at(3))
    for i in range(count):
        script.kernel("aten.addmm.default", reads=[hidden], module=f"blocks.{i}.mlp", frame=at(10))
        saved = script.make(inner * MIB // 4, category=Category.ACTIVATION, module=f"blocks.{i}.mlp", frame=at(10))
        script.kernel("aten.add.Tensor", reads=[saved, hidden], module=f"blocks.{i}", frame=at(11))
        hidden = script.make(handed_on * MIB // 4, category=Category.ACTIVATION, module=f"blocks.{i}", frame=at(11))
    script.kernel("aten.mm.default", reads=[hidden], module="head", frame=at(19))
    script.kernel("aten.mm.default", reads=[hidden], phase=phase, frame=at(20))
    script.make(MIB // 4)
    return script.trace()


def checkpointing(trace, **options):
    context = FakeContext(trace, **options)
    return list(MissingActivationCheckpointing().check(context)), context


def test_repeated_blocks_are_checkpointed_by_a_retrace():
    (finding,), context = checkpointing(blocks(8), changes={CheckpointModules: -56 * MIB}, gpu="cpu")
    assert context.asked == [CheckpointModules(tuple(f"blocks.{i}" for i in range(8)))]
    assert finding.nbytes == 64 * MIB
    assert finding.peak_change == -56 * MIB
    assert finding.severity is Severity.WARNING
    assert finding.confidence is Confidence.EXACT_RETRACE
    assert finding.line == 10
    assert "8 `Block` modules `blocks.0` to `blocks.7` keep 64.0 MiB" in finding.message


def test_a_detailed_report_has_cheaper_choices_as_well():
    (finding,), context = checkpointing(blocks(8), changes={CheckpointModules: -56 * MIB}, thorough=True)
    everything, *cheaper = context.asked
    assert everything == CheckpointModules(tuple(f"blocks.{i}" for i in range(8)))
    assert CheckpointModules(tuple(f"blocks.{i}" for i in range(0, 8, 2))) in cheaper
    assert finding.peak_change == -56 * MIB


def test_a_small_saving_is_a_note():
    (finding,), _ = checkpointing(blocks(8), changes={CheckpointModules: -15 * MIB}, gpu="cpu")
    assert finding.severity is Severity.NOTE


def test_no_saving_is_a_note_that_says_where_the_peak_is():
    (finding,), _ = checkpointing(blocks(8), changes={CheckpointModules: 0})
    assert finding.severity is Severity.NOTE
    assert "The peak would not fall: it is" in finding.message
    assert "in backward, aten.mm.default at model.py:20" in finding.message


@pytest.mark.parametrize(
    "trace",
    [
        blocks(2),
        blocks(8, inner=0, handed_on=8),
        blocks(8, phase=Phase.OPTIMIZER),
        blocks(8, kind="Sequential"),
    ],
    ids=["two blocks", "only inputs are saved", "peak in the optimizer", "containers"],
)
def test_nothing_is_said_where_checkpointing_cannot_help(trace):
    findings, context = checkpointing(trace, changes={CheckpointModules: -(2**30)})
    assert findings == []
    assert context.asked == []


def test_inference_saves_nothing_and_is_not_checkpointed():
    assert checkpointing(blocks(8), mode="inference", changes={CheckpointModules: -(2**30)})[0] == []


def test_stages_of_blocks_are_tried_at_both_sizes_and_the_better_one_is_reported():
    modules = [("", "Model")]
    for stage in range(3):
        modules.append((f"stages.{stage}", "Stage"))
        for block in range(3):
            modules += [(f"stages.{stage}.{block}", "Block"), (f"stages.{stage}.{block}.fc", "Linear")]
    script = Script(modules=[*modules, ("stages", "ModuleList")])
    script.step()
    for path, kind in modules:
        if kind == "Linear":
            script.kernel("aten.addmm.default", module=path)
            script.make(8 * MIB // 4, category=Category.ACTIVATION, module=path, frame=at(4))
    outer = CheckpointModules(tuple(f"stages.{stage}" for stage in range(3)))
    inner = CheckpointModules(tuple(f"stages.{stage}.{block}" for stage in range(3) for block in range(3)))
    (finding,), context = checkpointing(script.trace(), changes={outer: -20 * MIB, inner: -40 * MIB})
    assert context.asked[:2] == [outer, inner]
    assert finding.peak_change == -40 * MIB
    assert "9 `Block` modules" in finding.message


# MEM107


def held_logits(steps=2):
    """Each step: logits are read by the loss, then kept while backward makes the peak."""
    script = Script()
    weight = script.make(MIB // 4, category=Category.PARAMETER)
    kept = []
    for _ in range(steps):
        script.step()
        script.kernel("aten.addmm.default", reads=[weight], frame=at(12))
        logits = script.make(32 * MIB // 4, category=Category.TEMPORARY, frame=at(12))
        script.kernel("aten._log_softmax.default", reads=[logits], frame=at(13))
        saved = script.make(32 * MIB // 4, category=Category.ACTIVATION, frame=at(13))
        script.kernel("aten._log_softmax_backward_data.default", reads=[saved], phase=Phase.BACKWARD, frame=at(13))
        gradient = script.make(32 * MIB // 4)
        script.kernel("aten.mm.default", reads=[gradient, weight], phase=Phase.BACKWARD, frame=at(12))
        script.free(saved, gradient, logits)
        kept.append(logits)
    return script.trace(), kept


def dead(trace, **options):
    context = FakeContext(trace, **options)
    return list(DeadAtPeakReference().check(context))


def test_the_variable_its_line_and_the_exact_saving_are_named():
    trace, kept = held_logits()
    (finding,) = dead(
        trace,
        holders=dict.fromkeys(kept, Holder("outputs.logits", at(40, function="train_step"), ("outputs",))),
        gpu="cpu",
    )
    assert finding.nbytes == 32 * MIB
    assert finding.peak_change == -32 * MIB
    assert finding.confidence is Confidence.EXACT_LIFETIME
    assert finding.severity is Severity.WARNING
    assert finding.line == 40
    assert "`outputs.logits` in `train_step` keeps 32.0 MiB" in finding.message
    assert "model.py:12" in finding.message
    assert "`del outputs`" in finding.fix


def test_what_no_variable_holds_is_not_reported():
    trace, _ = held_logits()
    assert dead(trace) == []


def test_what_memlints_own_loop_holds_is_reported_where_the_program_made_it():
    trace, kept = held_logits()
    own = at(99, path=memlint.__file__.replace("__init__.py", "workload/program.py"), function="step")
    (finding,) = dead(trace, holders=dict.fromkeys(kept, Holder("output['logits']", own, ("output",))))
    assert (finding.path, finding.line) == ("/home/user/model.py", 12)
    assert "part of what the model returns (`output['logits']`)" in finding.message
    assert "return only the loss" in finding.fix


def test_tensors_of_one_variable_are_one_finding():
    script = Script()
    script.step()
    script.kernel("aten.mm.default")
    pair = [script.make(MIB, frame=at(5)), script.make(2 * MIB, frame=at(6))]
    script.kernel("aten.add.Tensor", reads=pair)
    script.kernel("aten.mm.default")
    script.make(8 * MIB)
    (finding,) = dead(script.trace(), holders=dict.fromkeys(pair, Holder("outputs", at(40), ("outputs",))))
    assert finding.nbytes == 12 * MIB
    assert finding.peak_change == -12 * MIB
    assert finding.severity is Severity.NOTE


def test_scalars_and_counters_are_not_worth_a_word():
    script = Script()
    script.step()
    script.kernel("aten.mean.default")
    loss = script.make(1000, frame=at(5))
    script.kernel("aten.mm.default")
    script.make(8 * MIB)
    assert dead(script.trace(), holders={loss: Holder("loss", at(40), ("loss",))}) == []


def test_what_generate_of_a_library_made_is_not_searched_for_in_the_project():
    library = "/venv/lib/python3.11/site-packages/transformers/models/llama/modeling_llama.py"
    searched = []
    for caller, mode in ((None, "generate"), (at(7), "generate"), (None, "inference")):
        script = Script()
        script.step()
        script.kernel("aten.mm.default")
        made = script.make(8 * MIB, frame=at(312, path=library)._replace(caller=caller))
        script.kernel("aten.mm.default")
        script.make(8 * MIB)
        held = {made: Holder("hidden", at(40), ("hidden",))}
        searched.append(bool(dead(script.trace(), mode=mode, holders=held)))
    assert searched == [False, True, True]


# MEM119


def half_attention(beside, of_attention):
    """A layer in bfloat16 at whose peak so many MiB of its attention are alive, and as many of the rest of it."""
    script = Script()
    script.step()
    query = script.make(MIB, dtype="bfloat16", module="model.layers.0.attn", frame=at(3))
    script.kernel(
        "aten._scaled_dot_product_efficient_attention.default", reads=[query], module="model.layers.0.attn", frame=at(4)
    )
    script.free(query)
    script.make(of_attention * MIB // 2, dtype="bfloat16", module="model.layers.0.attn", frame=at(4))
    script.kernel("aten.mm.default", module="model.layers.0.mlp", frame=at(9))
    script.make(beside * MIB // 2, dtype="bfloat16", module="model.layers.0.mlp", frame=at(9))
    return script.trace()


@pytest.mark.parametrize(("beside", "of_attention", "is_tried"), [(2000, 8, False), (200, 100, True)])
def test_flash_attention_is_tried_where_attention_takes_memory_at_the_peak(beside, of_attention, is_tried):
    context = FakeContext(half_attention(beside, of_attention), changes={AttentionImplementation: -50 * MIB})
    assert bool(list(FlashAttentionUnused().check(context))) is is_tried
    assert bool(context.asked) is is_tried


def test_masks_that_are_made_outside_of_the_layers_may_go_with_flash_attention():
    script = Script()
    script.step()
    script.kernel("aten.where.self", module="model", frame=at(2))
    mask = script.make(64 * MIB // 2, dtype="bfloat16", module="model", frame=at(2))
    embedded = script.make(64 * MIB // 2, dtype="bfloat16", module="model.embed", frame=at(1))
    own = script.make(MIB // 2, dtype="bfloat16", module="model.embed", frame=at(1))
    script.kernel(
        "aten._scaled_dot_product_efficient_attention.default", reads=[own], module="model.layers.0.attn", frame=at(4)
    )
    trace = script.trace()
    at_peak = [trace.buffers[each] for each in (mask, embedded, own)]
    assert most_saved_by_flash(trace, at_peak) == 65 * MIB


# MEM121


@pytest.mark.parametrize(("lines", "is_tried"), [((306, 306, 306), True), ((306, 312, 66), False)])
def test_outputs_of_every_layer_are_switched_off_where_a_line_has_made_several_dead_tensors(lines, is_tried):
    path = "/home/user/transformers/models/llama/modeling_llama.py"
    script = Script()
    script.step()
    script.kernel("aten.mm.default", frame=at(1, path=path))
    for line in lines:
        script.make(64 * MIB, frame=at(line, path=path))
    script.kernel("aten.mm.default", frame=at(2, path=path))
    script.make(MIB)
    context = FakeContext(script.trace(), changes={OnlyTheOutput: -100 * MIB})
    assert bool(list(OutputsOfEveryLayer().check(context))) is is_tried
    assert bool(context.asked) is is_tried


# MEM204


def foreach_step(phase=Phase.OPTIMIZER):
    script = Script()
    script.make(64 * MIB // 4, category=Category.PARAMETER)
    script.step()
    script.kernel("aten._foreach_sqrt.default", phase=phase, frame=at(30, function="train"))
    script.make(32 * MIB // 4)
    script.make(32 * MIB // 4)
    return script.trace()


def temporaries(trace, **options):
    context = FakeContext(trace, **options)
    return list(OptimizerStepTemporaries().check(context))


FUSED = OptimizerImplementation(foreach=False, fused=True)
LOOP = OptimizerImplementation(foreach=False, fused=False)


def test_foreach_temporaries_at_the_peak_are_fused_away():
    (finding,) = temporaries(foreach_step(), changes={FUSED: -64 * MIB, LOOP: -60 * MIB})
    assert finding.nbytes == 64 * MIB
    assert finding.peak_change == -64 * MIB
    assert finding.line == 30
    assert "`fused=True`" in finding.fix


def test_an_optimizer_without_a_fused_kernel_loops():
    (finding,) = temporaries(foreach_step(), changes={LOOP: -60 * MIB})
    assert finding.peak_change == -60 * MIB
    assert "`foreach=False`" in finding.fix


def test_nothing_is_said_where_neither_applies_or_the_peak_is_elsewhere():
    assert temporaries(foreach_step()) == []
    assert temporaries(foreach_step(Phase.BACKWARD), changes={FUSED: -64 * MIB}) == []


# MEM306


def adjacency(nodes=4096, nonzeros=10_000, dtype="float32", category=Category.TEMPORARY, op="aten.mm.default"):
    script = Script()
    script.step()
    for _ in range(2):
        script.kernel("aten.zeros.default", frame=at(9))
        matrix = script.make(nodes, nodes, dtype=dtype, category=category, frame=at(9), nonzeros=nonzeros)
        features = script.make(nodes, 16, dtype=dtype)
        script.kernel(op, reads=[matrix, features], frame=at(10))
        script.free(matrix, features)
    return script.trace()


def sparse(trace):
    return list(DenseShouldBeSparse().check(FakeContext(trace)))


def test_a_mostly_empty_operand_is_reported_once_with_its_size_in_coo_format():
    (finding,) = sparse(adjacency())
    as_coo = 10_000 * (4 + 2 * 8)
    assert finding.nbytes == 4096 * 4096 * 4 - as_coo
    assert finding.peak_change == -finding.nbytes
    assert finding.confidence is Confidence.MODELLED
    assert finding.line == 9
    assert "4096 x 4096 float32" in finding.message
    assert "10,000 of its elements (0.06%)" in finding.message


def test_a_buffer_of_the_model_is_named_and_reported_where_it_is_multiplied():
    trace = adjacency()
    buffers = tuple(
        buffer._replace(name="graph.adjacency", category=Category.BUFFER) if buffer.nonzeros else buffer
        for buffer in trace.buffers
    )
    (finding,) = sparse(replace(trace, buffers=buffers))
    assert finding.message.startswith("`graph.adjacency`, a 4096 x 4096 float32 matrix, takes 64.0 MiB")
    assert finding.line == 10


@pytest.mark.parametrize(
    "trace",
    [
        adjacency(nonzeros=None),
        adjacency(nonzeros=4096 * 4096 // 9),
        adjacency(nonzeros=4096 * 4096 // 15, dtype="bfloat16"),
        adjacency(nodes=512, nonzeros=100),
        adjacency(category=Category.PARAMETER),
        adjacency(op="aten.mul.Tensor"),
    ],
    ids=["unknown", "above a tenth", "above half of break-even", "small", "parameter", "no product"],
)
def test_dense_enough_small_and_other_operands_are_left_alone(trace):
    assert sparse(trace) == []


def test_half_precision_needs_a_lower_density():
    assert len(sparse(adjacency(nonzeros=4096 * 4096 // 15))) == 1
    assert len(sparse(adjacency(nonzeros=4096 * 4096 // 19, dtype="bfloat16"))) == 1


# MEM310


def convolutions(image=(2, 64, 32, 32), weight=(128, 64, 3, 3), dtype="float16", last=(False, False), count=3):
    script = Script()
    script.step()
    for number in range(count):
        script.kernel("aten.empty.memory_format")
        x, w = script.make(*image, dtype=dtype), script.make(*weight, dtype=dtype)
        reads = [
            script.whole(buffer, channels_last(shape) if nhwc else None)
            for buffer, shape, nhwc in ((x, image, last[0]), (w, weight, last[1]))
        ]
        script.kernel("aten.convolution.default", reads=reads, frame=at(20 + number))
    return script.trace()


def nchw(trace, **options):
    return list(NchwConvOnTensorCores().check(FakeContext(trace, **options)))


def test_convolutions_are_one_finding_at_the_first_that_promises_no_memory():
    (finding,) = nchw(convolutions(), changes={ChannelsLast: 0})
    assert finding.severity is Severity.INFO
    assert (finding.nbytes, finding.peak_change, finding.line) == (0, 0, 20)
    assert "3 convolutions run in float16 with NCHW strides" in finding.message
    assert "Every tensor keeps its bytes" in finding.message


def test_a_rise_of_the_peak_is_said():
    (finding,) = nchw(convolutions(), changes={ChannelsLast: 3 * MIB})
    assert finding.peak_change == 3 * MIB
    assert "The peak changes by 3.00 MiB" in finding.message


def test_bytes_are_called_analytic_when_nothing_was_traced_again():
    (finding,) = nchw(convolutions(count=1))
    assert finding.confidence is Confidence.ANALYTIC
    assert "1 convolution runs" in finding.message


@pytest.mark.parametrize(
    "trace",
    [
        convolutions(last=(True, True)),
        convolutions(last=(True, False)),
        convolutions(last=(False, True)),
        convolutions(dtype="float32"),
        convolutions(weight=(64, 1, 3, 3)),
        convolutions(image=(2, 3, 32, 32), weight=(64, 3, 7, 7)),
        convolutions(weight=(100, 64, 3, 3)),
        convolutions(image=(2, 64, 1, 1), weight=(128, 64, 1, 1)),
    ],
    ids=["nhwc", "nhwc input", "nhwc weight", "float32", "depthwise", "rgb", "odd channels", "no layout"],
)
def test_other_convolutions_are_left_alone(trace):
    assert nchw(trace) == []


def test_gpus_without_tensor_cores_and_the_host_are_left_alone():
    assert nchw(convolutions(), gpu="cpu") == []
