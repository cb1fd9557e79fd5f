"""User code shapes the files of the exchange, which are not its own: one clear answer, and nobody waits."""

from __future__ import annotations

import sys
import time

import pytest

from memlint.base.exchange import MOST_NBYTES, Exchange
from memlint.worker.child import FILES, MARKS, PARTIAL, REASON, REPLY, SMALLER, STACK, STDERR, STDOUT
from memlint.worker.endings import read_answer, stopped
from memlint.worker.protocol import Limits, Reply, Result

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="of files that are removed while they are open")

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
def test_code_that_hangs_beside_replaced_files_is_ended_at_its_limit(project, by):
    begin = time.monotonic()
    code = REPLACING.format(names=FILES, by=by) + "import time\nprint('seen', flush=True)\ntime.sleep(600)"
    answer = project.run(code, seconds=3)
    assert "no answer within 3 s" in answer.error.message
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


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("name", [REPLY, PARTIAL, SMALLER, STACK, REASON, MARKS])
def test_what_code_writes_into_the_exchange_is_read_to_a_limit(tmp_path, name, written):
    with Exchange(tmp_path, FILES, new=True) as exchange:
        exec("import os\n" + written, {"file": str(tmp_path / name)})
        limits = Limits()
        for answer in (read_answer(exchange, 0, limits), stopped("seconds", exchange, limits)):
            assert answer.result is None
            assert answer.partial is None
            assert answer.error is not None
            assert len(answer.error.message) < 2000


def test_a_message_is_whole_or_not_there(tmp_path):
    with Exchange(tmp_path, FILES, new=True) as exchange:
        assert exchange.last(PARTIAL) is None
        assert not exchange.is_said(REPLY)
        (tmp_path / PARTIAL).write_bytes(b'{"torch": "1"}\n{"tor')  # a copy that was killed while it wrote
        assert exchange.last(PARTIAL) == b'{"torch": "1"}'
        exchange.say(PARTIAL, b'{"torch": "2"}')
        assert exchange.last(PARTIAL) == b'{"torch": "2"}'
        exchange.say(REPLY, Reply(result=Result(torch="3")).model_dump_json().encode())
        assert exchange.is_said(REPLY)
        assert read_answer(exchange, 0, Limits()).result == Result(torch="3")


def test_many_messages_do_not_fill_the_disk(tmp_path):
    with Exchange(tmp_path, FILES, new=True) as exchange:
        for number in range(6):
            exchange.say(PARTIAL, b"x" * 2**24 + str(number).encode())
        assert exchange.last(PARTIAL)[-1:] == b"5"
        assert exchange.nbytes(PARTIAL) < MOST_NBYTES // 4
