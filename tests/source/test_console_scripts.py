"""Commands and packages of a project that nobody has installed."""

from pathlib import Path

from memlint.source.console_scripts import folder_of_package


def test_a_package_that_has_only_packages_in_it_is_found(tmp_path: Path) -> None:
    (tmp_path / "agent" / "pretrain").mkdir(parents=True)
    assert folder_of_package("agent", [tmp_path]) is None
    (tmp_path / "agent" / "pretrain" / "train.py").touch()
    assert folder_of_package("agent", [Path("elsewhere"), tmp_path]) == tmp_path
