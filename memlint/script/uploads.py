"""Uploads to the Hugging Face Hub, which are skipped: a script continues as if they had succeeded."""

import functools
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from memlint.script.replacing import Replacing

_COMMITS = ("create_commit", "upload_file", "upload_folder", "delete_file", "delete_files", "delete_folder")
_OTHERS = ("create_branch", "create_tag", "preupload_lfs_files", "upload_large_folder", "delete_repo")
_OWNER = "me"
"""Owner of repositories that a script names without one."""


def replace_uploads(module: ModuleType, replacing: Replacing, connect: Callable[[str], None]) -> None:
    """Make the methods of `HfApi` that change repositories do nothing; `connect` gets each repository's address."""

    def repository(kwargs: dict[str, Any]) -> Any:
        name = str(kwargs["repo_id"])
        return module.RepoUrl(f"{module.constants.ENDPOINT}/{name if '/' in name else f'{_OWNER}/{name}'}")

    def commit(kwargs: dict[str, Any]) -> Any:
        message = kwargs.get("commit_message") or ""
        return module.CommitInfo(f"{repository(kwargs)}/commit/{'0' * 40}", message, "", "0" * 40)

    def nothing(_kwargs: dict[str, Any]) -> None:
        pass

    def replaced(method: Callable[..., Any], answer: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            arguments = signature.bind(*args, **kwargs).arguments
            arguments |= arguments.pop("kwargs", {})
            connect(str(repository(arguments)).partition("://")[2])
            if not arguments.get("run_as_future"):
                return answer(arguments)
            future: Future[Any] = Future()
            future.set_result(answer(arguments))
            return future

        return call

    answers = {"create_repo": repository, **dict.fromkeys(_COMMITS, commit), **dict.fromkeys(_OTHERS, nothing)}
    for name, answer in answers.items():
        if hasattr(module.HfApi, name):
            replacing.put(module.HfApi, name, replaced(getattr(module.HfApi, name), answer))
            if hasattr(module, name):  # bound when the module was imported
                replacing.put(module, name, getattr(module.api, name))
