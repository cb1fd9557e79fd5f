"""Tables of generations: prompts, tokens and batches."""

import json

import pytest
from click.testing import CliRunner

from memlint.cli import main
from tests.generation.test_extension import FILE


def rows(*arguments):
    result = CliRunner().invoke(main, [*arguments, "--mode", "generate", "--output-format", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["sweeps"]


@pytest.mark.slow
def test_a_sweep_of_long_generations_has_every_prompt_and_the_largest_batch_that_fits():
    sizes = ("--prompt", "16,64", "--new-tokens", "40", "--batch", "1,2")
    short, long = rows("sweep", f"{FILE}::gpt2", *sizes, "--gpu", "t4")
    assert [each["dimensions"]["prompt"] for each in (short, long)] == [16, 64]
    assert all(row["requested"]["estimate"] > 0 for each in (short, long) for row in each["rows"])
    assert short["rows"][1]["requested"]["estimate"] < long["rows"][1]["requested"]["estimate"]
    assert short["largest"]["batch"] > long["largest"]["batch"] > 2
