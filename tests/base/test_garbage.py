"""When Python looks for reference cycles."""

import subprocess
import sys

CODE = """
import gc
from memlint.base.garbage import long_lived

begun = []
gc.callbacks.append(lambda phase, _info: begun.append(phase))
with long_lived():
    made = [[] for _ in range(100_000)]
more = [[] for _ in range(10)]
assert begun == [], begun
assert gc.get_count()[0] < 100 and gc.isenabled()
"""


def test_what_lives_long_is_not_searched_for_cycles_afterwards():
    subprocess.run([sys.executable, "-c", CODE], check=True)
