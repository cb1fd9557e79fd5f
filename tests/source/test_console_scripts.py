"""Packages of a project that nobody has installed."""

from memlint.source.console_scripts import folder_of_package


def test_a_package_may_have_all_of_its_files_in_folders_of_its_own(tmp_path):
    (tmp_path / "src" / "agents" / "fit").mkdir(parents=True)
    (tmp_path / "src" / "agents" / "fit" / "train.py").touch()
    (tmp_path / "data" / "agents").mkdir(parents=True)
    (tmp_path / "src" / "helpers.py").touch()
    folders = tmp_path / "data", tmp_path / "src"
    assert [folder_of_package(each, folders) for each in ("agents", "helpers", "fit")] == [folders[1], folders[1], None]
