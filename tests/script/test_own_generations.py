"""Scripts that generate in a loop of their own: their phases, their caches and their verdict."""

import textwrap
from pathlib import Path

from memlint.commands.exit_status import exit_status
from memlint.report.terminal import render_text
from memlint.report.text_style import TextStyle
from tests.script.running import run_text

MODEL = """
    import torch
    from torch import nn

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(50, 64), nn.Linear(64, 50)
            self.register_buffer("k_cache", torch.zeros(2, 32, 64), persistent=False)

        def forward(self, tokens, start=None):
            hidden = self.embedding(tokens)
            if start is not None:
                self.k_cache[:, start : start + tokens.shape[1]] = hidden
            return self.head(hidden)

    model = Decoder().cuda().half().eval()
    tokens = torch.zeros(2, 8, dtype=torch.long, device="cuda")
"""
WITHOUT_CACHE = """
    with torch.no_grad():
        for _ in range(6):
            chosen = model(tokens)[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, chosen], 1)
"""
WITH_CACHE = """
    with torch.inference_mode():
        chosen = model(tokens, 0)[:, -1].argmax(-1, keepdim=True)
        for position in range(8, 13):
            chosen = model(chosen, position)[:, -1].argmax(-1, keepdim=True)
"""


def workload_of(folder: Path, text: str):
    checked = run_text(folder, MODEL + text)
    (workload,) = checked.report.workloads
    assert (workload.error, exit_status(checked.report)) == (None, 0)
    return workload, render_text(checked.report, TextStyle())


def test_a_loop_whose_tokens_grow_by_one_is_a_generation(tmp_path: Path) -> None:
    workload, text = workload_of(tmp_path, WITHOUT_CACHE)
    assert (workload.script.happened, workload.mode, workload.batch, workload.dtype) == (
        "generated",
        "generate",
        2,
        "float16",
    )
    assert set(workload.estimate.phase_peaks) >= {"prefill", "decode"}
    assert workload.estimate.generation.new_tokens == 6
    assert "generation without training" in text
    assert "training step" not in text


def test_a_loop_that_reads_one_token_beside_a_cache_is_a_generation(tmp_path: Path) -> None:
    workload, _ = workload_of(tmp_path, WITH_CACHE)
    assert workload.script.happened == "generated"
    assert set(workload.estimate.phase_peaks) >= {"prefill", "decode"}
    assert workload.estimate.generation.new_tokens == 6
    assert workload.estimate.generation.cache_nbytes == 2 * 32 * 64 * 2
    assert workload.estimate.categories["kv_cache"] == 2 * 32 * 64 * 2


COMPILED = """
    @torch.compile(fullgraph=True)
    def decode_one(model, token, position):
        return model(token, position)[:, -1].argmax(-1, keepdim=True)

    with torch.inference_mode():
        chosen = model(tokens, torch.arange(8, device="cuda"))[:, -1].argmax(-1, keepdim=True)
        position = torch.tensor([8], device="cuda")
        for _ in range(5):
            chosen = decode_one(model, chosen, position)
            position += 1
"""


def test_a_compiled_function_that_is_given_the_model_calls_it(tmp_path: Path) -> None:
    written = "self.k_cache[:, start] = hidden"
    text = MODEL.replace("self.k_cache[:, start : start + tokens.shape[1]] = hidden", written) + COMPILED
    checked = run_text(tmp_path, text)
    (workload,) = checked.report.workloads
    assert workload.error is None
    assert any(each.text.startswith("torch.compile is simulated") for each in workload.assumptions)
    assert workload.script.happened == "generated"
    assert set(workload.estimate.phase_peaks) >= {"prefill", "decode"}
    assert workload.estimate.generation.new_tokens == 6


def test_of_several_generations_the_last_is_described(tmp_path: Path) -> None:
    workload, _ = workload_of(tmp_path, WITH_CACHE + WITH_CACHE.replace("13", "11"))
    assert workload.estimate.generation.new_tokens == 4


def test_a_second_text_without_a_cache_is_a_generation_of_its_own(tmp_path: Path) -> None:
    again = WITHOUT_CACHE.replace("range(6)", "range(4)")
    workload, _ = workload_of(
        tmp_path, f"    tokens = tokens[:, :1]\n{WITHOUT_CACHE}    tokens = tokens[:, :1]\n{again}"
    )
    assert workload.estimate.generation.new_tokens == 4


def test_batches_of_different_lengths_are_no_generation(tmp_path: Path) -> None:
    loop = """
    with torch.no_grad():
        for length in (8, 9, 7, 8, 12):
            model(tokens.new_zeros(2, length))
    """
    workload, text = workload_of(tmp_path, loop)
    assert (workload.script.happened, workload.mode) == ("evaluated", "inference")
    assert workload.estimate.generation is None
    assert set(workload.estimate.phase_peaks) <= {"evaluation", "other"}
    assert "inference without training" in text


def test_what_is_called_after_a_generation_is_no_part_of_it(tmp_path: Path) -> None:
    decoder = """
    with torch.no_grad():
        nn.Sequential(nn.Linear(64, 4096)).cuda().half().eval()(torch.zeros(4096, 64, device="cuda", dtype=torch.half))
    """
    workload, _ = workload_of(tmp_path, WITH_CACHE + decoder)
    assert workload.estimate.phase == "evaluation"
    assert workload.estimate.phase_peaks["evaluation"] > workload.estimate.phase_peaks["decode"]


def test_each_model_of_a_pipeline_has_its_peak(tmp_path: Path) -> None:
    pipeline = """
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.upsample = nn.Linear(64, 4096)

        def decode(self, x):
            return self.upsample(x)

    class Pipeline:
        def __init__(self):
            self.encoder, self.vae = nn.Linear(64, 64).cuda(), Decoder().cuda()

        @torch.no_grad()
        def __call__(self, x):
            return self.vae.decode(self.encoder(x))

    Pipeline()(torch.zeros(4096, 64, device="cuda"))
    """
    workload, text = workload_of(tmp_path, pipeline)
    assert set(workload.estimate.model_peaks) == {"encoder", "vae"}
    assert workload.estimate.model_peaks["vae"] == workload.estimate.peak.requested.estimate
    assert workload.estimate.model_peaks["vae"] - workload.estimate.model_peaks["encoder"] > 4096 * 4000 * 4
    assert "highest by model: encoder" in text


def test_a_script_that_fails_before_it_generates_gets_a_generation_of_memlints_own(tmp_path: Path) -> None:
    text = """
    class Writer(Decoder):
        def __init__(self):
            super().__init__()
            self.further = nn.Linear(64, 64)

        @torch.no_grad()
        def generate(self, tokens, max_new_tokens):
            for _ in range(max_new_tokens):
                tokens = torch.cat([tokens, self(tokens)[:, -1].argmax(-1, keepdim=True)], 1)
            return tokens

    writer = Writer().cuda().eval()
    raise OSError("there is no prompt")
    writer.generate(tokens, 16)
    """
    checked = run_text(tmp_path, MODEL + text)
    (workload,) = checked.report.workloads
    assert (workload.script.happened, workload.mode) == ("built", "generate")
    assert set(workload.estimate.phase_peaks) >= {"prefill", "decode"}
    assert workload.estimate.generation.new_tokens == 128
    assert any("prompt 512, new_tokens 128" in each.text for each in workload.assumptions)


def test_calls_of_the_forward_of_a_model_by_itself_are_its_rounds(tmp_path: Path) -> None:
    workload, text = workload_of(tmp_path, WITH_CACHE.replace("model(", "model.forward("))
    assert workload.estimate.generation.new_tokens == 6
    assert set(workload.estimate.phase_peaks) >= {"prefill", "decode"}
    assert "highest by model" not in text


def test_the_tokens_of_a_loop_that_would_take_too_long_follow_from_the_first(tmp_path: Path) -> None:
    whole, _ = workload_of(tmp_path, WITH_CACHE)
    longer = WITH_CACHE.replace("range(8, 13):", "range(8, 10_000):\n            time.sleep(0.05)").replace(
        "(chosen, position)", "(chosen, 8 + position % 24)"
    )
    short, text = workload_of(tmp_path, f"    import time\n{longer}")
    assert "17 of 9,993 tokens were generated, from which the others follow" in text
    assert (short.estimate.generation.new_tokens, whole.estimate.generation.new_tokens) == (9993, 6)
    assert short.estimate.generation.cache_nbytes == whole.estimate.generation.cache_nbytes
    assert short.estimate.peak == whole.estimate.peak


def test_what_the_garbage_collector_frees_in_one_round_stays_to_the_end_of_those_that_follow(tmp_path: Path) -> None:
    whole, _ = workload_of(tmp_path, WITH_CACHE)
    knot = """
        import gc, time
        gc.disable()

        class Knot:
            def __init__(self):
                self.itself, self.scores = self, torch.ones(1000, device="cuda")

        Knot()
    """
    body = "range(8, 10_000):\n            time.sleep(0.05)\n            position == 19 and gc.collect()"
    longer = WITH_CACHE.replace("range(8, 13):", body).replace("(chosen, position)", "(chosen, 8 + position % 24)")
    short, text = workload_of(tmp_path, f"{textwrap.indent(textwrap.dedent(knot), ' ' * 4)}\n{longer}")
    assert "17 of 9,993 tokens were generated, from which the others follow" in text
    beside = short.estimate.peak.requested.estimate - whole.estimate.peak.requested.estimate
    assert 4000 <= beside <= 4096


BEAMS = """
    with torch.no_grad():
        beams = [[0] * 8, [0] * 8]
        for position in (0, *range(8, 13)):
            logits = model(torch.tensor(beams, device="cuda")[:, -1:] if position else tokens, position)[:, -1]
            found = {}
            for beam, row in zip(beams, logits):
                for score, token in zip(*row.float().log_softmax(-1).topk(3)):
                    found[tuple(beam + [token.item()])] = score.item()
            beams = [list(beam) for beam in sorted(found, key=found.get, reverse=True)[:2]]
"""


def test_a_beam_search_that_keeps_its_beams_by_their_tokens_keeps_all_of_them(tmp_path: Path) -> None:
    workload, _text = workload_of(tmp_path, BEAMS)
    assert (workload.mode, workload.batch) == ("generate", 2)
    assert workload.estimate.generation.new_tokens == 6


CHAT = """
    def ask(question):
        return input(question).split()

    name = ask("Your name: ")
    while True:
        chosen = torch.zeros(1, len(ask("You: ")), dtype=torch.long, device="cuda")
        with torch.inference_mode():
            for position in range(6):
                chosen = model(chosen, position)[:, -1:].argmax(-1)
"""


def test_a_chat_is_asked_one_question_and_ends_where_it_waits_for_the_next(tmp_path: Path) -> None:
    workload, _text = workload_of(tmp_path, CHAT)
    assert (workload.script.happened, workload.estimate.generation.new_tokens) == ("generated", 6)
