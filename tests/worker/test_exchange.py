"""User code shapes the files of the exchange, which are not its own: one clear answer, and nobody waits."""

from __future__ import annotations

import json
import sys
import time

import pytest

from memlint.base.errors import WorkerError
from memlint.base.exchange import MOST_NBYTES, Exchange
from memlint.worker.child import (
    CAPTURES,
    FILES,
    HEARD,
    JOBS,
    PARTIAL,
    REASON,
    REPLY,
    SMALLER,
    STACK,
    STDERR,
    STDOUT,
)
from tests.worker.conftest import HANGS

pytestmark = [
    pytest.mark.usefixtures("copied_pythons"),
    pytest.mark.skipif(sys.platform == "win32", reason="of files that are removed while they are open"),
]

REPLACED = {
    "a pipe": "os.mkfifo(file)",
    "a folder": "os.mkdir(file); open(os.path.join(file, 'inner'), 'w').close()",
    "a loop of links": "os.symlink(file, file)",
    "a device": "os.symlink('/dev/zero', file)",
    "3 GiB of zeros": "os.truncate(os.open(file, os.O_CREAT | os.O_RDWR), 3 << 30)",
    "nothing": "pass",
}
"""By what each file is replaced."""
REPLACING = """
import os, sys, glob
from memlint.worker import child
folder = str(child.exchange_folder())
for name in {names!r}:
    file = os.path.join(folder, name)
    os.unlink(file)
    {by}
"""


@pytest.mark.parametrize("by", REPLACED.values(), ids=REPLACED)
def test_what_stands_under_the_names_of_the_exchange_is_never_looked_at(project, by):
    code = REPLACING.format(names=FILES, by=by) + "print('seen')\nsaid = 'done'"
    answer = project.run(code)
    assert answer.error is None, answer.error
    assert answer.result.skipped[0].reason == '"done"'
    assert answer.stdout == "seen\n"


@pytest.mark.parametrize("by", REPLACED.values(), ids=REPLACED)
def test_code_that_hangs_beside_replaced_files_is_ended_at_its_limit(project, monkeypatch, by):
    begin = time.monotonic()
    code = REPLACING.format(names=FILES, by=by) + f"import time\nprint('seen', flush=True)\n{HANGS}time.sleep(600)"
    answer = project.run_out_of_time(code, monkeypatch)
    assert answer.stdout == "seen\n"
    assert time.monotonic() - begin < 300  # and not for ever


CLOSED = {"small numbers": "os.closerange(0, 256)", "all": "os.closerange(0, 65536)"}


@pytest.mark.parametrize("closed", CLOSED.values(), ids=CLOSED)
def test_code_that_closes_what_is_open_is_answered_all_the_same(project, closed):
    answer = project.run(f"import os\n{closed}\nsaid = 'done'")
    assert answer.error is None, answer.error
    assert answer.result.skipped[0].reason == '"done"'


def test_without_its_files_and_their_handles_code_has_no_answer_and_that_is_said(project):
    code = REPLACING.format(names=FILES, by="os.mkfifo(file)") + "os.closerange(0, 65536)\nsaid = 'done'"
    answer = project.run(code)
    assert answer.result is None
    assert "exit status" in answer.error.message


def test_output_counts_when_its_file_is_gone(project):
    code = REPLACING.format(names=[STDOUT, STDERR], by="pass") + "while True: print('x' * 1000)"
    answer = project.run(code, output_nbytes=2**20)
    assert "wrote more than 1.00 MiB" in answer.error.message
    assert answer.stdout.startswith("xxx")


WRITTEN = {
    "3 GiB of zeros": "os.truncate(file, 3 << 30)",
    "no JSON": "open(file, 'w').write('{\\n')",
    "no text": "open(file, 'wb').write(bytes(range(256)) + b'\\n')",
    "another answer": "open(file, 'w').write('[]\\n')",
}
SAYS = """
import os, time
from memlint.worker import child
file = os.path.join(str(child.exchange_folder()), {name!r})
{written}
{end}
"""


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("name", [PARTIAL, SMALLER, STACK, REASON, HEARD, JOBS, CAPTURES])
def test_what_code_writes_into_the_exchange_is_read_to_a_limit(project, monkeypatch, name, written):
    code = SAYS.format(name=name, written=written, end=f"{HANGS}time.sleep(600)")
    answer = project.run_out_of_time(code, monkeypatch)
    assert answer.result is None
    assert answer.partial is None
    assert answer.error is not None
    assert len(answer.error.message) < 2000


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_a_reply_that_code_has_written_is_none_and_that_is_said_once(project, written):
    answer = project.run(SAYS.format(name=REPLY, written=written, end="time.sleep(600)"))
    assert answer.result is None
    assert answer.partial is None
    assert isinstance(answer.error, WorkerError)
    assert answer.error.message.startswith("the answer of the child process cannot be read")
    assert "mistake in memlint" in answer.error.hint
    assert len(answer.error.message) < 2000


@pytest.mark.parametrize(
    "reply",
    ["{", "[]", "{}", '{"number": 1, "unknown": 1}', '{"number": 1, "answer": {"unknown": 1}}', '{"number": 1}'],
)
def test_an_answer_that_cannot_be_read_is_our_mistake(project, reply):
    written = f"open(file, 'a').write({reply!r} + chr(10))"
    answer = project.run(SAYS.format(name=REPLY, written=written, end="time.sleep(600)"))
    assert answer.result is None
    assert isinstance(answer.error, WorkerError)
    assert answer.error.message.startswith("the answer of the child process cannot be read")
    assert "mistake in memlint" in answer.error.hint


CAPTURE_PLACES = {
    "behind the end": [10**15, 10],
    "before the beginning": [-5, 10],
    "nothing": [0, 0],
    "garbage": [0, 64],
}


@pytest.mark.parametrize("place", CAPTURE_PLACES.values(), ids=CAPTURE_PLACES)
def test_a_capture_that_code_has_written_is_one_clear_error(project, place):
    code = f"""
        import json, os, time
        from memlint.worker import child
        folder = str(child.exchange_folder())
        open(os.path.join(folder, "{CAPTURES}"), "wb").write(b"MEMLINT" + bytes(range(256)))
        open(os.path.join(folder, "{REPLY}"), "a").write(json.dumps({{"number": 1, "capture": {place}}}) + chr(10))
        time.sleep(600)
        """
    answer = project.run(code)
    assert answer.result is None
    assert isinstance(answer.error, WorkerError)
    assert answer.error.message.startswith("the answer of the child process cannot be read")
    assert "mistake in memlint" in answer.error.hint


def test_replies_to_jobs_that_nobody_asked_for_are_read_over(project):
    replies = "".join(json.dumps({"number": number, "answer": {"text": "no"}}) + "\n" for number in (0, 7, -1))
    answer = project.run(SAYS.format(name=REPLY, written=f"open(file, 'a').write({replies!r})", end="said = 'done'"))
    assert answer.error is None, answer.error
    assert answer.result.skipped[0].reason == '"done"'


def test_half_a_reply_that_code_has_written_spoils_the_one_behind_it_and_that_is_said(project):
    half = "open(file, 'ab').write(b'{\"number\": 1, ')\ntime.sleep(0.3)"
    answer = project.run(SAYS.format(name=REPLY, written=half, end="said = 'done'"))
    assert "cannot be read" in answer.error.message


def test_a_message_is_whole_or_not_there(tmp_path):
    with Exchange(tmp_path, FILES, new=True) as exchange:
        assert exchange.last(PARTIAL) is None
        assert not exchange.is_said(PARTIAL)
        (tmp_path / PARTIAL).write_bytes(b'{"torch": "1"}\n{"tor')  # a copy that was killed while it wrote
        assert exchange.last(PARTIAL) == b'{"torch": "1"}'
        exchange.say(PARTIAL, b'{"torch": "2"}')
        assert exchange.last(PARTIAL) == b'{"torch": "2"}'
        assert exchange.is_said(PARTIAL)


def test_many_messages_do_not_fill_the_disk(tmp_path):
    with Exchange(tmp_path, FILES, new=True) as exchange:
        for number in range(6):
            exchange.say(PARTIAL, b"x" * 2**24 + str(number).encode())
        assert exchange.last(PARTIAL)[-1:] == b"5"
        assert exchange.nbytes(PARTIAL) < MOST_NBYTES // 4
