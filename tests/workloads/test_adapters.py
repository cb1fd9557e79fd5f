"""Adapters of peft that a table declares: what is frozen, what is trained, what 4-bit weights take."""

from __future__ import annotations

import pytest

from memlint.base.errors import WorkloadError
from memlint.memory.records import Category
from memlint.workloads.build.construct import build
from memlint.workloads.loading import prepare_imports
from tests.in_process import analysed
from tests.workloads.tables import read_workloads

prepare_imports()
pytest.importorskip("transformers")
pytest.importorskip("peft")

WIDTH, INNER, LAYERS, VOCABULARY, RANK = 64, 128, 2, 100, 4
LINEAR = LAYERS * (4 * WIDTH * WIDTH + 3 * WIDTH * INNER)
OTHERS = 2 * VOCABULARY * WIDTH + (2 * LAYERS + 1) * WIDTH
ADAPTER = LAYERS * 2 * RANK * 2 * WIDTH
"""Numbers in the linear layers of the blocks, elsewhere, and in LoRA's two matrices for queries and values."""


def workload(adapter, folder):
    (folder / "pyproject.toml").write_text(
        f"""[[tool.memlint.workload]]
target = "transformers::LlamaConfig"
batch = 2
adapter = {adapter}
arguments = {{ hidden_size = {WIDTH}, intermediate_size = {INNER}, num_hidden_layers = {LAYERS},
              num_attention_heads = 4, num_key_value_heads = 4, vocab_size = {VOCABULARY},
              max_position_embeddings = 128 }}
""".replace(",\n ", ", ")
    )
    (read,) = read_workloads(folder / "pyproject.toml")
    return read


def parameter_nbytes(analysis):
    return analysis.estimate.categories[Category.PARAMETER]


def test_an_adapter_alone_is_trained(tmp_path):
    analysis = analysed(workload(f"{{ r = {RANK} }}", tmp_path), tmp_path)
    assert parameter_nbytes(analysis) == 4 * (LINEAR + OTHERS + ADAPTER)
    assert analysis.estimate.categories[Category.OPTIMIZER_STATE] == 8 * ADAPTER
    assert [spec.name for spec in analysis.workload.inputs] == ["input_ids", "labels"]


def test_quantized_weights_take_half_a_byte_and_their_scales(tmp_path):
    pytest.importorskip("bitsandbytes")
    analysis = analysed(workload(f'{{ r = {RANK}, quantize = "nf4" }}', tmp_path), tmp_path)
    whole = LINEAR // 2 + 4 * (OTHERS + ADAPTER)
    scales = LINEAR // 64
    assert whole + scales < parameter_nbytes(analysis) < whole + 2 * scales + 7 * LAYERS * 1536


@pytest.mark.parametrize(("double", "nbytes"), [(False, 4), (True, 1)])
def test_a_config_with_weights_of_4_bits_says_what_their_scales_take(double, nbytes, tmp_path):
    pytest.importorskip("bitsandbytes")
    settings = f'load_in_4bit = true, bnb_4bit_quant_type = "nf4", bnb_4bit_use_double_quant = {str(double).lower()}'
    workload(f"{{ r = {RANK} }}", tmp_path)
    path = tmp_path / "pyproject.toml"
    quantization = f'{{ quant_method = "bitsandbytes", {settings} }}'
    path.write_text(path.read_text().replace("128 }", f"128, quantization_config = {quantization} }}"))
    (declared,) = read_workloads(path)
    whole, scales = LINEAR // 2 + 4 * (OTHERS + ADAPTER), nbytes * LINEAR // 64
    rest = parameter_nbytes(analysed(declared, tmp_path)) - whole - scales
    assert 0 <= rest <= 7 * LAYERS * 1536  # tables of 16 or 256 values, and of scales of scales, of each layer


@pytest.mark.parametrize(
    ("adapter", "message"),
    [('{ quantize = "int3" }', "quantize is 'int3'"), ("{ rank = 4 }", "peft does not take the workload's adapter")],
)
def test_settings_that_make_no_sense_are_an_error(adapter, message, tmp_path):
    with pytest.raises(WorkloadError, match=message):
        build(workload(adapter, tmp_path))
