"""A client of the language server, as an editor is one: it keeps what the server says, and waits for it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

_PATIENCE = 120.0


class Editor:
    """An editor with one folder open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = LanguageClient("tests", "1")
        self.published: list[types.PublishDiagnosticsParams] = []
        self.progress: list[Any] = []
        self.messages: list[str] = []
        self.edits: list[types.WorkspaceEdit] = []
        self.changed = asyncio.Event()
        self._versions: dict[str, int] = {}
        self._listen()

    def _listen(self) -> None:
        client = self.client

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def publish(params: types.PublishDiagnosticsParams) -> None:
            self.published.append(params)
            self.changed.set()

        @client.feature(types.WINDOW_WORK_DONE_PROGRESS_CREATE)
        def create(params: types.WorkDoneProgressCreateParams) -> None:
            return None

        @client.feature(types.PROGRESS)
        def progress(params: types.ProgressParams) -> None:
            self.progress.append(params)
            self.changed.set()

        @client.feature(types.WINDOW_SHOW_MESSAGE)
        def message(params: types.ShowMessageParams) -> None:
            self.messages.append(params.message)
            self.changed.set()

        @client.feature(types.WORKSPACE_APPLY_EDIT)
        def apply(params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
            self.edits.append(params.edit)
            self.changed.set()
            return types.ApplyWorkspaceEditResult(applied=True)

        for name in (types.WORKSPACE_CODE_LENS_REFRESH, types.WORKSPACE_INLAY_HINT_REFRESH):

            @client.feature(name)
            def refresh(*_params: object) -> None:
                self.changed.set()

    async def start(self, **options: object) -> None:
        await self.client.start_io(sys.executable, "-m", "memlint", "lsp", cwd=self.folder)
        await self.client.initialize_async(
            types.InitializeParams(
                types.ClientCapabilities(
                    window=types.WindowClientCapabilities(work_done_progress=True),
                    text_document=types.TextDocumentClientCapabilities(
                        code_lens=types.CodeLensClientCapabilities(), inlay_hint=types.InlayHintClientCapabilities()
                    ),
                    workspace=types.WorkspaceClientCapabilities(
                        code_lens=types.CodeLensWorkspaceClientCapabilities(refresh_support=True),
                        inlay_hint=types.InlayHintWorkspaceClientCapabilities(refresh_support=True),
                    ),
                ),
                root_uri=self.folder.as_uri(),
                initialization_options=options or None,
            )
        )
        self.client.initialized(types.InitializedParams())

    async def stop(self) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client._server.wait()

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
