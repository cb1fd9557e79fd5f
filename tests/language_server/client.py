"""An editor that drives the language server through pytest-lsp, with the capabilities of one that exists."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from lsprotocol import types
from pytest_lsp import LanguageClient, client_capabilities
from pytest_lsp.client import DEFAULT_CLIENT_FEATURES, register_lsp_features

_PATIENCE = 120.0


class Editor:
    """An editor with one folder open; pytest-lsp warns of what its capabilities do not allow the server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = LanguageClient()
        self.published: list[types.PublishDiagnosticsParams] = []
        self.progress: list[Any] = []
        self.edits: list[types.WorkspaceEdit] = []
        self.changed = asyncio.Event()
        self._versions: dict[str, int] = {}
        register_lsp_features(self.client, {**DEFAULT_CLIENT_FEATURES, **self._features()})

    def _features(self) -> dict[str, Any]:
        def publish(params: types.PublishDiagnosticsParams) -> None:
            self.published.append(params)
            self.changed.set()

        def progress(params: types.ProgressParams) -> None:
            self.progress.append(params)
            self.changed.set()

        def message(params: types.ShowMessageParams) -> None:
            self.client.messages.append(params)
            self.changed.set()

        def apply(params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
            self.edits.append(params.edit)
            self.changed.set()
            return types.ApplyWorkspaceEditResult(applied=True)

        def refresh(*_params: object) -> None:
            self.changed.set()

        return {
            types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS: publish,
            types.PROGRESS: progress,
            types.WINDOW_SHOW_MESSAGE: message,
            types.WORKSPACE_APPLY_EDIT: apply,
            types.WORKSPACE_CODE_LENS_REFRESH: refresh,
            types.WORKSPACE_INLAY_HINT_REFRESH: refresh,
        }

    async def start(self, name: str = "visual-studio-code", **options: object) -> None:
        """Start the server as the editor of this name does; `options` are the settings of the server."""
        await self.client.start_io(sys.executable, "-m", "memlint", "lsp", cwd=self.folder)
        await self.client.initialize_session(
            types.InitializeParams(
                client_capabilities(name), root_uri=self.folder.as_uri(), initialization_options=options or None
            )
        )

    @property
    def messages(self) -> list[str]:
        return [each.message for each in self.client.messages]

    async def stop(self) -> None:
        await self.client.shutdown_session()
        await self.client.stop()

    def uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def open(self, name: str, text: str | None = None) -> None:
        file = self.folder / name
        if text is not None:
            file.write_text(text, encoding="utf-8")
        item = types.TextDocumentItem(self.uri(name), "python", 1, file.read_text(encoding="utf-8"))
        self._versions[name] = 1
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def edit(self, name: str, text: str, at: tuple[int, int], to: tuple[int, int] | None = None) -> int:
        """Put `text` in the place of what is from `at` up to `to`, both line and character from 0."""
        self._versions[name] += 1
        span = types.Range(types.Position(*at), types.Position(*(to or at)))
        self._send(name, types.TextDocumentContentChangePartial(range=span, text=text))
        return self._versions[name]

    def replace(self, name: str, text: str) -> int:
        self._versions[name] += 1
        self._send(name, types.TextDocumentContentChangeWholeDocument(text))
        return self._versions[name]

    def _send(self, name: str, change: types.TextDocumentContentChangeEvent) -> None:
        document = types.VersionedTextDocumentIdentifier(self._versions[name], self.uri(name))
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    def save(self, name: str, text: str | None = None) -> None:
        if text is not None:
            (self.folder / name).write_text(text, encoding="utf-8")
        document = types.TextDocumentIdentifier(self.uri(name))
        self.client.text_document_did_save(types.DidSaveTextDocumentParams(document))

    async def until(self, condition: Any) -> Any:
        """Wait until `condition` gives something."""

        async def wait() -> Any:
            while not (result := condition()):
                self.changed.clear()
                await self.changed.wait()
            return result

        try:
            return await asyncio.wait_for(wait(), _PATIENCE)
        except TimeoutError:
            raise AssertionError(f"not within {_PATIENCE} s: {self.messages} {self.progress[-3:]}") from None

    def diagnostics(self, name: str, version: int | None = None) -> list[types.Diagnostic] | None:
        """The last ones of a file, of that version of its text if one is given."""
        own = [each for each in self.published if each.uri == self.uri(name)]
        if not own or (version is not None and own[-1].version != version):
            return None
        return list(own[-1].diagnostics)

    async def published_for(self, name: str, version: int) -> list[types.Diagnostic]:
        await self.until(lambda: self.diagnostics(name, version) is not None)
        return self.diagnostics(name, version) or []

    def num_ended(self) -> int:
        return sum(getattr(each.value, "kind", None) == "end" or _kind(each.value) == "end" for each in self.progress)

    async def traced(self, number: int) -> None:
        """Wait for the end of that many traces."""
        await self.until(lambda: self.num_ended() >= number)

    async def lenses(self, name: str) -> list[tuple[int, str]]:
        params = types.CodeLensParams(types.TextDocumentIdentifier(self.uri(name)))
        lenses = await self.client.text_document_code_lens_async(params)
        return [(lens.range.start.line, lens.command.title) for lens in lenses or []]

    async def hints(self, name: str) -> list[tuple[int, str]]:
        span = types.Range(types.Position(0, 0), types.Position(10_000, 0))
        params = types.InlayHintParams(types.TextDocumentIdentifier(self.uri(name)), span)
        hints = await self.client.text_document_inlay_hint_async(params)
        return [(hint.position.line, hint.label) for hint in hints or []]

    async def hover(self, name: str, line: int) -> str:
        params = types.HoverParams(types.TextDocumentIdentifier(self.uri(name)), types.Position(line, 0))
        hover = await self.client.text_document_hover_async(params)
        return hover.contents.value if hover else ""

    async def actions(self, name: str, line: int, only: list[str] | None = None) -> list[types.CodeAction]:
        span = types.Range(types.Position(line, 0), types.Position(line, 1))
        context = types.CodeActionContext([], only=only)
        params = types.CodeActionParams(types.TextDocumentIdentifier(self.uri(name)), span, context)
        return list(await self.client.text_document_code_action_async(params) or [])

    async def command(self, name: str, *arguments: object) -> Any:
        params = types.ExecuteCommandParams(name, list(arguments))
        return await self.client.workspace_execute_command_async(params)


def _kind(value: Any) -> Any:
    return value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
