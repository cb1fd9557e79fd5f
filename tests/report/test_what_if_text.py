"""Plans and simulated changes as text."""

from memlint.report.model import Change, Plan
from memlint.report.text_style import TextStyle
from memlint.report.what_if_text import plan_lines, what_if_lines
from tests.report.sample import ESTIMATE, GIB, MIB, exactly

PAINT = TextStyle()


def change(text, requested, *, effect="exact", share=0.0):
    peak = ESTIMATE.peak.model_copy(update={"requested": exactly(requested), "device": exactly(requested + GIB)})
    return Change(
        kind="CheckpointModules",
        text=text,
        effect=effect,
        peak=peak,
        peak_change=requested - ESTIMATE.peak.requested.estimate,
        phase="backward",
        op="aten.mm.default",
        path="models/gpt2.py",
        line=7,
        recompute_share=share,
    )


def plan(limit, *changes, met=True):
    return Plan(limit=limit, limit_name="budget", met=met, changes=list(changes))


def test_each_line_is_the_peak_after_it_and_where_it_is():
    first, second = change("checkpoint", 3 * GIB, share=0.25), change("drop", 2 * GIB, effect="numerics")
    lines = list(plan_lines(plan(4 * GIB, first, second), ESTIMATE, PAINT))
    assert "as it is" in lines[1]
    assert " ".join(lines[2].split()) == "1. checkpoint 4.00 GiB backward, gpt2.py:7 exact, 25% more FLOPs"
    assert " ".join(lines[3].split()) == "2. drop 3.00 GiB backward, gpt2.py:7 numerics"
    assert lines[4] == "  With all of them the budget of 4.00 GiB is kept: 3.00 GiB."


def test_code_to_paste_stands_below():
    written = change("checkpoint", 2 * GIB).model_copy(update={"snippet": ["for each in model:", "    pass"]})
    *_, verdict, empty, head, blank, first, second = plan_lines(
        plan(4 * GIB, change("drop", 3 * GIB), written), ESTIMATE, PAINT
    )
    assert verdict.startswith("  With all of them")
    assert head == "  Change 2, made on `model`:"
    assert [empty, blank, first, second] == ["", "", "    for each in model:", "        pass"]


def test_a_limit_that_is_not_met_says_how_much_is_missing():
    *_, last = plan_lines(plan(GIB, change("drop", 2 * GIB), met=False), ESTIMATE, PAINT)
    assert last == "  This is the best that was found: the budget of 1.00 GiB is not met, up to 2.00 GiB too much."
    *_, last = plan_lines(plan(GIB, met=False), ESTIMATE, PAINT)
    assert last.startswith("  No change was found that lowers the peak: the budget of 1.00 GiB is not met")


def test_a_limit_between_the_likely_and_the_highest_peak_may_be_exceeded():
    *_, last = plan_lines(plan(5500 * MIB, met=False), ESTIMATE, PAINT)
    assert "the budget of 5.37 GiB may be exceeded, by up to 244.0 MiB (5.61 GiB at most)" in last


def test_nothing_to_change():
    (line,) = plan_lines(plan(6 * GIB), ESTIMATE, PAINT)
    assert line == "  Plan: nothing to change, the budget of 6.00 GiB is kept (5.61 GiB at most)"


def test_changes_alone_stand_beside_the_peak_as_it_is():
    assert not list(what_if_lines([], ESTIMATE, PAINT))
    _, now, alone = what_if_lines([change("drop", 4 * GIB)], ESTIMATE, PAINT)
    assert now.split() == ["4.12", "GiB", "as", "it", "is"]
    assert alone.split() == f"4.00 GiB -{128 * MIB / MIB} MiB drop exact".split()
