"""The server: what a client sends, and what it is answered."""

import ast
import asyncio
import os
import tomllib
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import PositionCodec, TextDocument

from memlint.base.errors import MemlintError, UsageError
from memlint.base.units import format_count
from memlint.base.version import HOME, PUBLISHED, __version__
from memlint.commands.check.add_ignore import with_comments
from memlint.config import find_settings
from memlint.language_server.background import Done, Order, Progress, uses_pytorch
from memlint.language_server.edits import character_edits, line_edits, line_range, range_of
from memlint.language_server.notes import FileNotes, VerdictNote, notes_of
from memlint.language_server.options import Options
from memlint.language_server.origins import Origins
from memlint.language_server.source import Checked, Linter
from memlint.language_server.tracer import Tracer
from memlint.lint.diagnostics import DIAGNOSTICS
from memlint.lint.fixes import fix_text
from memlint.lint.rule import Applicability, Finding
from memlint.report import model as report
from memlint.report.formats.problems import Problem, problem_of
from memlint.report.from_rules import finding_of
from memlint.source.files import Unreadable
from memlint.source.scripts import is_script, training_at_import

TRACE, RUN, CHANGE, DECLARE = "memlint.trace", "memlint.run", "memlint.change", "memlint.declare"
"""Commands: trace the workloads of a file; run a few steps of a script; change the options; declare a workload."""
_FIX_ALL = "source.fixAll.memlint"
_SOON = 0.03
"""Seconds without another change after which a text is checked."""
_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
    "note": types.DiagnosticSeverity.Hint,
}
_OWN = frozenset(diagnostic.code for diagnostic in DIAGNOSTICS)


@dataclass
class _Document:
    """An open file."""

    uri: str
    path: Path
    origins: Origins
    """Since the text that the notes speak of was saved."""
    saved: Origins
    """Since the text was saved last, or opened."""
    version: int | None = None
    checked: Checked | None = None
    """The findings of an earlier text or of this one."""
    timer: asyncio.TimerHandle | None = None


@dataclass
class _State:
    """The state of the server."""

    options: Options = field(default_factory=Options)
    refused: UsageError | None = None
    """Why the options with which the client began were not taken."""
    linter: Linter = field(default_factory=Linter)
    documents: dict[str, _Document] = field(default_factory=dict)
    """Open files by real path."""
    notes: dict[str, FileNotes] = field(default_factory=dict)
    """By real path, from the last Report that says something of that file."""
    noted: dict[str, frozenset[str]] = field(default_factory=dict)
    """For each traced file the files that its Report speaks of."""
    scripts: set[str] = field(default_factory=set)
    """Scripts that were run by command: they run again when they are saved."""
    num_progress: int = 0
    token: str | None = None
    """Token of the progress that is shown now."""


class MemlintServer(LanguageServer):
    """A language server with a Tracer."""

    def __init__(self) -> None:
        super().__init__("memlint", __version__, types.TextDocumentSyncKind.Incremental)
        self.state = _State()
        self.tracer = Tracer(self._begin, self._progress, self._done)

    def opened(self, document: TextDocument) -> None:
        """Take an open file, and show what is known of it."""
        origins = Origins(document.source)
        own = _Document(document.uri, Path(document.path), origins, origins, document.version)
        self.state.documents[os.path.realpath(document.path)] = own
        self.check(own, document)
        if "torch" in document.source:
            asyncio.get_running_loop().create_task(self.tracer.warm_up())
            if self.state.options.trace_on_open:
                self.trace(document.path)

    def changed(self, document: TextDocument, changes: Iterable[types.TextDocumentContentChangeEvent]) -> None:
        """Follow edits; the text is checked when they pause."""
        own = self.document(document.uri)
        if own is None:
            return
        for change in changes:
            for origins in dict.fromkeys((own.origins, own.saved)):
                origins.follow(change, document.source)
        if own.timer is not None:
            own.timer.cancel()
        own.timer = asyncio.get_running_loop().call_later(_SOON, self.check, own, document)

    def check(self, own: _Document, document: TextDocument) -> None:
        """Run the source rules and publish all that is to be said of the file."""
        own.timer, own.version = None, document.version
        if own.checked is None or own.checked.text != document.source:
            try:
                own.checked = self.state.linter.check(own.path, document.source, own.checked)
            except MemlintError as error:
                self.say(error.message, error.hint)
                own.checked = Checked(document.source, None, ())
        self.publish(os.path.realpath(own.path))

    def saved(self, document: TextDocument) -> None:
        """Trace the workloads that have a part in the file."""
        self.state.linter.forget()
        own = self.document(document.uri)
        if own is not None:
            own.saved = Origins(document.source)
        if self.state.options.trace_on_save:
            self.trace(document.path)

    def closed(self, uri: str) -> None:
        """Forget the text of a file."""
        own = self.document(uri)
        if own is not None:
            del self.state.documents[os.path.realpath(own.path)]
            if own.timer is not None:
                own.timer.cancel()
            self.publish(os.path.realpath(own.path))

    def document(self, uri: str) -> _Document | None:
        """Give an open file."""
        path = to_fs_path(uri)
        return None if path is None else self.state.documents.get(os.path.realpath(path))

    def trace(self, path: str, *, script: bool = False, init: bool = False, target: str = "") -> None:
        """Have the workloads of a file traced, with the options of the editor."""
        real = os.path.realpath(path)
        if not real.endswith(".py") or not os.path.isfile(real):  # noqa: PTH113
            return
        if script:
            self.state.scripts.add(real)
        try:
            settings, root = find_settings(Path(real).parent)
        except MemlintError as error:
            self.say(error.message, error.hint)
            return
        if not (settings.workload or uses_pytorch(Path(real))):
            return
        runs = real in self.state.scripts
        self.tracer.order(
            Order(
                directory=str(root),
                targets=() if runs else (target or real,),
                scripts=(real,) if runs else (),
                settings=self.state.options.settings,
                init=init,
            )
        )

    async def _begin(self, order: Order) -> None:
        window = self.client_capabilities.window
        if window is None or not window.work_done_progress:
            return
        self.state.num_progress += 1
        token = f"memlint/{self.state.num_progress}"
        await self.work_done_progress.create_async(token)
        self.work_done_progress.tokens[token].add_done_callback(lambda _future: self.tracer.cancel())
        names = [os.path.relpath(each, order.directory) for each in (*order.targets, *order.scripts)]
        begin = types.WorkDoneProgressBegin(title="memlint", cancellable=True, message=", ".join(names))
        self.work_done_progress.begin(token, begin)
        self.state.token = token

    def _progress(self, progress: Progress) -> None:
        if self.state.token is not None and progress.target:
            text = f"{os.path.basename(progress.target)} ({progress.seconds:.0f} s)"  # noqa: PTH119
            self.work_done_progress.report(self.state.token, types.WorkDoneProgressReport(message=text))

    def _done(self, order: Order, done: Done) -> None:
        try:
            if done.error is not None:
                self.say(*done.error)
            elif order.init and done.report is not None:
                asyncio.get_running_loop().create_task(self._declare(order, done))
            elif done.report is not None:
                self._show(order, done.report)
        except Exception:  # a mistake here must not end the traces to come
            traceback.print_exc()
            self.say("what was traced cannot be shown", "Please report the lines in the log of this language server.")
        if self.state.token is not None:
            message = "stopped" if done.report is None and done.error is None else "done"
            self.work_done_progress.end(self.state.token, types.WorkDoneProgressEnd(message=message))
            self.state.token = None

    def _show(self, order: Order, done: report.Report) -> None:
        """Replace what an earlier Report says by what this one says."""
        notes = notes_of(done, Path(order.directory), order.scripts)
        asked = [*order.targets, *order.scripts]
        stale = {old for target in asked for old in self.state.noted.pop(target, ())}
        for path in stale:
            self.state.notes.pop(path, None)
        self.state.notes.update(notes)
        self.state.noted.update((target, frozenset(notes)) for target in asked)
        for path in {*stale, *notes}:
            own = self.state.documents.get(path)
            if own is not None:
                own.origins = own.saved
            self.publish(path)
        self._refresh()

    def _refresh(self) -> None:
        """Let the client ask again for lenses and hints."""
        workspace = self.client_capabilities.workspace
        if workspace is not None and workspace.code_lens is not None and workspace.code_lens.refresh_support:
            self.workspace_code_lens_refresh(None)
        if workspace is not None and workspace.inlay_hint is not None and workspace.inlay_hint.refresh_support:
            self.workspace_inlay_hint_refresh(None)

    async def _declare(self, order: Order, done: Done) -> None:
        """Write the declaration of a workload: into the configuration, or into its file where it is Python."""
        text = "".join(f"\n{each.strip()}\n" for each in done.declarations)
        if not text:
            self.say("there is nothing to declare", "See the errors of the file.")
            return
        file = Path(order.directory, "pyproject.toml")
        if not _is_toml(text):
            file = Path(order.targets[0].partition("::")[0])
        uri = from_fs_path(str(file)) or ""
        end = types.Position(_num_lines(file), 0)
        edit: list[Any] = [
            types.TextDocumentEdit(
                types.OptionalVersionedTextDocumentIdentifier(uri),
                [types.TextEdit(types.Range(end, end), text if file.exists() else text.lstrip())],
            )
        ]
        if not file.exists():
            edit.insert(0, types.CreateFile(uri, options=types.CreateFileOptions(ignore_if_exists=True)))
        params = types.ApplyWorkspaceEditParams(types.WorkspaceEdit(document_changes=edit), label="declare a workload")
        await self.workspace_apply_edit_async(params)

    def say(self, message: str, hint: str | None = "") -> None:
        """Show a message to the user."""
        text = f"memlint: {message}. {hint}" if hint else f"memlint: {message}"
        self.window_show_message(types.ShowMessageParams(types.MessageType.Warning, text))

    def publish(self, path: str) -> None:
        """Publish the findings of the text and those of traced steps, each where it stands now."""
        own = self.state.documents.get(path)
        uri = own.uri if own is not None else from_fs_path(path)
        if uri is None:
            return
        diagnostics = list(self._diagnostics(path, own))
        version = own.version if own is not None else None
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, diagnostics, version))

    def _diagnostics(self, path: str, own: _Document | None) -> Iterator[types.Diagnostic]:
        notes = self.state.notes.get(path, FileNotes())
        now = own.origins.now() if own is not None else None
        lines = own.checked.text.split("\n") if own is not None and own.checked is not None else []
        traced = [(each, problem_of(each, path)) for each in notes.findings]
        computed = set()
        for problem in [*notes.problems, *(problem for _finding, problem in traced)]:
            line = _line_now(problem.line or 1, now)
            if line is not None:
                computed.add((problem.code, line))
                text = lines[line - 1] if line <= len(lines) else ""
                yield _diagnostic(problem, line_range(text, line, self._codec))
        if own is not None and own.checked is not None:
            for finding in own.checked.findings:
                if (finding.code, finding.line) not in computed:
                    span = range_of(own.checked.source, finding, self._codec)
                    yield _diagnostic(problem_of(finding_of(finding), path), span)

    @property
    def _codec(self) -> PositionCodec:
        return self.workspace.position_codec

    def lenses(self, uri: str) -> Iterator[types.CodeLens]:
        """Give the verdicts, each over its class or function, and what can be run."""
        own = self.document(uri)
        if own is None or own.checked is None:
            return
        for verdict, line in self._verdicts(own):
            command = types.Command(verdict.text, TRACE, arguments=[uri])
            yield types.CodeLens(_start_of(line), command)
        source = own.checked.source
        if source is None or os.path.realpath(own.path) in self.state.scripts:
            return
        if is_script(source) or training_at_import(source) is not None:
            yield types.CodeLens(_start_of(1), types.Command("Run its first steps without a GPU", RUN, arguments=[uri]))

    def _verdicts(self, own: _Document) -> Iterator[tuple[VerdictNote, int]]:
        notes = self.state.notes.get(os.path.realpath(own.path), FileNotes())
        for verdict in notes.verdicts:
            line = _line_of(own.checked.source if own.checked else None, verdict.qualname)
            if line is not None:
                yield verdict, line

    def hints(self, uri: str, span: types.Range) -> Iterator[types.InlayHint]:
        """Give the bytes of lines behind them; the verdicts too where the client has no lenses."""
        own = self.document(uri)
        if own is None or own.checked is None or not self.state.options.bytes_beside_lines:
            return
        lines = own.checked.text.split("\n")
        texts = list(self._texts(own))
        for line, text, details in texts:
            if span.start.line <= line - 1 <= span.end.line and line <= len(lines):
                end = line_range(lines[line - 1], line, self._codec).end
                tooltip = types.MarkupContent(types.MarkupKind.Markdown, details)
                yield types.InlayHint(end, text, tooltip=tooltip, padding_left=True)

    def _texts(self, own: _Document) -> Iterator[tuple[int, str, str]]:
        """Yield the line, the hint and its details."""
        notes = self.state.notes.get(os.path.realpath(own.path), FileNotes())
        now = own.origins.now()
        for note in notes.lines:
            line = now.get(note.line)
            if line is not None and note.is_notable:
                yield line, note.text, note.details
        document = self.client_capabilities.text_document
        if document is None or document.code_lens is None:
            for verdict, line in self._verdicts(own):
                yield line, verdict.text, verdict.details

    def hover(self, uri: str, line: int) -> types.Hover | None:
        """Say what a line holds, by tensor, and what its class takes."""
        own = self.document(uri)
        if own is None:
            return None
        now = own.origins.now()
        notes = self.state.notes.get(os.path.realpath(own.path), FileNotes())
        parts = [verdict.details for verdict, place in self._verdicts(own) if place == line]
        parts += [note.details for note in notes.lines if now.get(note.line) == line]
        if not parts:
            return None
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "\n\n---\n\n".join(parts)))

    def actions(self, params: types.CodeActionParams) -> Iterator[types.CodeAction | types.Command]:
        """Give corrections and suppressions of what is in the range, corrections of the file, and declarations."""
        own = self.document(params.text_document.uri)
        if own is None:
            return
        document = self.workspace.get_text_document(own.uri)
        if own.checked is None or own.checked.text != document.source:
            self.check(own, document)
        checked = own.checked
        if checked is None or checked.source is None:
            return
        only = params.context.only
        lines = range(params.range.start.line + 1, params.range.end.line + 2)
        if _wants(only, types.CodeActionKind.QuickFix):
            here = [finding for finding in checked.findings if finding.line in lines]
            yield from self._corrections(own, checked, here)
            yield from self._suppressions(own, checked, [*map(finding_of, here), *self._traced(own, lines)])
            for verdict, line in self._verdicts(own):
                if verdict.target and line in lines:
                    target = f"{own.path}::{verdict.qualname}"
                    command = types.Command("Declare this workload", DECLARE, arguments=[own.uri, target])
                    yield types.CodeAction("Declare this workload", kind=types.CodeActionKind.QuickFix, command=command)
        if _wants(only, _FIX_ALL):
            text, codes = self._fixed(own, document.source)
            if codes:
                title = f"Correct {format_count(len(codes), 'finding')} of memlint"
                edit = _edit(own.uri, line_edits(_normal(document.source), text))
                yield types.CodeAction(title, kind=_FIX_ALL, edit=edit)

    def _fixed(self, own: _Document, text: str) -> tuple[str, tuple[str, ...]]:
        try:
            return fix_text(_normal(text), str(own.path), self.state.linter.rules(own.path).findings_in)
        except (Unreadable, MemlintError):
            return text, ()

    def _corrections(self, own: _Document, checked: Checked, here: list[Finding]) -> Iterator[types.CodeAction]:
        for finding in here:
            if finding.correction is None or checked.source is None:
                continue
            edits = character_edits(checked.source, finding.correction.edits, self._codec)
            is_safe = finding.correction.applicability is Applicability.SAFE
            yield types.CodeAction(
                f"{finding.code}: {finding.fix}" if is_safe else f"{finding.code} (look at it): {finding.fix}",
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[
                    _diagnostic(
                        problem_of(finding_of(finding), str(own.path)), range_of(checked.source, finding, self._codec)
                    )
                ],
                is_preferred=is_safe,
                edit=_edit(own.uri, edits),
            )

    def _traced(self, own: _Document, lines: range) -> Iterator[report.Finding]:
        """Yield the findings of traced steps on these lines, which have moved since."""
        now = own.origins.now()
        notes = self.state.notes.get(os.path.realpath(own.path), FileNotes())
        for finding in notes.findings:
            line = now.get(finding.line)
            if line in lines:
                yield report.Finding(**(finding.model_dump() | {"line": line, "path": str(own.path)}))

    def _suppressions(self, own: _Document, checked: Checked, here: list[report.Finding]) -> Iterator[types.CodeAction]:
        assert checked.source is not None
        for code, finding in {finding.code: finding for finding in here if finding.code not in _OWN}.items():
            text, left = with_comments(checked.source, checked.source.text, [finding])
            if not left:
                yield types.CodeAction(
                    f"Ignore {code} here" if finding.line > 1 else f"Ignore {code} in this file",
                    kind=types.CodeActionKind.QuickFix,
                    edit=_edit(own.uri, line_edits(checked.source.text, text)),
                )


def _diagnostic(problem: Problem, span: types.Range) -> types.Diagnostic:
    is_rule = problem.code[-1:].isdigit()
    page = f"{HOME}/blob/main/docs/rules/{problem.code}.md" if is_rule and PUBLISHED else None
    return types.Diagnostic(
        span,
        "\n".join(problem.lines),
        severity=_SEVERITIES[problem.severity],
        code=problem.code,
        code_description=types.CodeDescription(page) if page else None,
        source="memlint",
    )


def _line_now(line: int, now: dict[int, int] | None) -> int | None:
    """The present number of a line of the saved text; None if it is gone."""
    return line if now is None else now.get(line)


def _line_of(source: Any, qualname: str) -> int | None:
    """Line of a class or function of the file; the first for a script, None where it is not there."""
    if not qualname:
        return 1
    if source is None:
        return None
    body: list[Any] = source.tree.body
    line = None
    for name in qualname.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        node = next((each for each in body if isinstance(each, kinds) and each.name == name), None)
        if node is None:
            return None
        body, line = node.body, node.lineno
    return line


def _start_of(line: int) -> types.Range:
    return types.Range(types.Position(line - 1, 0), types.Position(line - 1, 0))


def _wants(only: Iterable[str] | None, kind: str) -> bool:
    """Say whether a client asks for actions of that kind: for all, or for one that it is or is below."""
    return only is None or any(kind == each or kind.startswith(f"{each}.") for each in only)


def _edit(uri: str, edits: list[types.TextEdit]) -> types.WorkspaceEdit:
    return types.WorkspaceEdit(changes={uri: edits})


def _normal(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _is_toml(text: str) -> bool:
    try:
        return bool(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        return False


def _num_lines(file: Path) -> int:
    return file.read_text(encoding="utf-8").count("\n") + 1 if file.exists() else 0


def make_server() -> MemlintServer:
    """Give a server that answers everything it can."""
    server = MemlintServer()
    _begin_and_end(server)
    _follow_texts(server)
    _answer_questions(server)
    _obey_commands(server)
    return server


def _begin_and_end(server: MemlintServer) -> None:
    @server.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        try:
            server.state.options = Options.of(params.initialization_options)
        except UsageError as error:
            server.state.refused = error

    @server.feature(types.INITIALIZED)
    def initialized(_params: types.InitializedParams) -> None:
        if server.state.refused is not None:
            server.say(server.state.refused.message, server.state.refused.hint)

    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def configure(params: types.DidChangeConfigurationParams) -> None:
        if params.settings:
            server.state.options = Options.of(params.settings)

    @server.feature(types.SHUTDOWN)
    async def shutdown(_params: None) -> None:
        await server.tracer.close()


def _follow_texts(server: MemlintServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        server.opened(server.workspace.get_text_document(params.text_document.uri))

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: types.DidChangeTextDocumentParams) -> None:
        server.changed(server.workspace.get_text_document(params.text_document.uri), params.content_changes)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: types.DidSaveTextDocumentParams) -> None:
        server.saved(server.workspace.get_text_document(params.text_document.uri))

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        server.closed(params.text_document.uri)


def _answer_questions(server: MemlintServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_CODE_LENS)
    def code_lens(params: types.CodeLensParams) -> list[types.CodeLens]:
        return list(server.lenses(params.text_document.uri))

    @server.feature(types.TEXT_DOCUMENT_INLAY_HINT)
    def inlay_hint(params: types.InlayHintParams) -> list[types.InlayHint]:
        return list(server.hints(params.text_document.uri, params.range))

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        return server.hover(params.text_document.uri, params.position.line + 1)

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions([types.CodeActionKind.QuickFix, _FIX_ALL]))
    def code_action(params: types.CodeActionParams) -> list[types.CodeAction | types.Command]:
        return list(server.actions(params))


def _obey_commands(server: MemlintServer) -> None:
    @server.command(TRACE)
    def trace(uri: str) -> None:
        server.trace(to_fs_path(uri) or "")

    @server.command(RUN)
    def run(uri: str) -> None:
        server.trace(to_fs_path(uri) or "", script=True)

    @server.command(DECLARE)
    def declare(uri: str, target: str) -> None:
        server.trace(to_fs_path(uri) or "", init=True, target=target)

    @server.command(CHANGE)
    def change(options: dict[str, Any]) -> dict[str, Any]:
        server.state.options = server.state.options.changed(options)
        for own in list(server.state.documents.values()):
            if os.path.realpath(own.path) in server.state.notes:
                server.trace(str(own.path))
        return server.state.options.model_dump(by_alias=True)
