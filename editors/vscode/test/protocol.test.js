// The server as VS Code speaks with it: through the library that VS Code's own client is made of.
const test = require("node:test");
const assert = require("node:assert");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { spawn } = require("node:child_process");
const { pathToFileURL } = require("node:url");

const command = process.env.MEMLINT_LSP ? JSON.parse(process.env.MEMLINT_LSP) : null;
const TEXT = "import torch\n\ndef evaluate(model, loader):\n    model.eval()\n    for x in loader:\n        print(model(x).sum().item())\n";

test("VS Code's protocol library gets diagnostics and corrections", { skip: !command }, async () => {
  const rpc = require("vscode-languageserver-protocol/node");
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "memlint-vscode-"));
  const [program, ...args] = command;
  const server = spawn(program, args, { cwd: folder, stdio: ["pipe", "pipe", "inherit"] });
  const log = [];
  const connection = rpc.createProtocolConnection(
    new rpc.StreamMessageReader(server.stdout),
    new rpc.StreamMessageWriter(server.stdin),
  );
  const published = new Promise((resolve) => {
    connection.onNotification(rpc.PublishDiagnosticsNotification.type, resolve);
  });
  connection.trace(rpc.Trace.Verbose, { log: (message) => log.push(message) });
  connection.listen();
  const uri = pathToFileURL(path.join(folder, "evaluation.py")).toString();
  const initialized = await connection.sendRequest(rpc.InitializeRequest.type, {
    processId: process.pid,
    rootUri: pathToFileURL(folder).toString(),
    capabilities: { textDocument: { codeAction: { codeActionLiteralSupport: { codeActionKind: { valueSet: [] } } } } },
    initializationOptions: { gpu: null, batch: null, traceOnSave: true },
  });
  const { capabilities } = initialized;
  assert.ok(capabilities.hoverProvider && capabilities.codeLensProvider && capabilities.inlayHintProvider);
  assert.deepStrictEqual(capabilities.executeCommandProvider.commands.sort(), [
    "memlint.change",
    "memlint.declare",
    "memlint.run",
    "memlint.trace",
  ]);
  await connection.sendNotification(rpc.InitializedNotification.type, {});
  const textDocument = { uri, languageId: "python", version: 1, text: TEXT };
  await connection.sendNotification(rpc.DidOpenTextDocumentNotification.type, { textDocument });
  const { diagnostics } = await published;
  assert.deepStrictEqual(diagnostics.map((each) => [each.code, each.range.start.line]), [["MEM404", 4]]);
  const actions = await connection.sendRequest(rpc.CodeActionRequest.type, {
    textDocument: { uri },
    range: diagnostics[0].range,
    context: { diagnostics },
  });
  assert.ok(actions.some((each) => each.title === "Ignore MEM404 here" && each.edit.changes[uri].length === 1));
  await connection.sendRequest(rpc.ShutdownRequest.type);
  await connection.sendNotification(rpc.ExitNotification.type);
  const status = await new Promise((resolve) => server.on("exit", resolve));
  assert.strictEqual(status, 0, log.join("\n"));
  connection.dispose();
  fs.rmSync(folder, { recursive: true });
});
