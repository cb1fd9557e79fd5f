"""Read every snapshot of PyTorch in a folder, and hold a replay against the segments that the GPU had.

python benchmarks/snapshots.py FOLDER

Prints a row for each GPU: events, the verdict, the most bytes reserved as recorded and as replayed; then how many are
equal. A file that is no snapshot has its message.
"""

import argparse
import time
from pathlib import Path

from memlint.base.errors import MemlintError
from memlint.commands.explain.recordings import explain_recordings


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    num_equal = num_all = 0
    began = time.process_time()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        try:
            document = explain_recordings([file])
        except MemlintError as error:
            print(f"{file.name}: {error.message}")
            continue
        for each in document.explanations:
            num_all += 1
            num_equal += each.replayed == each.reserved
            print(
                f"{file.name} device {each.device}: {each.num_events} events, reserved {each.reserved}, "
                f"replayed {each.replayed}, {each.num_steps} steps by {each.steps_by}: {each.verdict}"
            )
    print(f"{num_equal} of {num_all} equal, {time.process_time() - began:.1f} s of processor")


if __name__ == "__main__":
    main()
