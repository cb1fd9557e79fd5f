// The VS Code side of `memlint lsp`: starts the server with the user's Python, and asks for GPU, batch and dtype.
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

const SECTION = "memlint";
const OPTIONS = ["gpu", "batch", "dtype", "mode", "optimizer", "traceOnSave", "traceOnOpen", "bytesBesideLines"];
const DTYPES = ["float32", "bfloat16", "float16", "bf16-amp", "fp16-amp"];
const GPUS = ["a100-80gb", "h100-80gb", "h200", "b200", "l40s", "a10g", "l4", "t4", "rtx5090", "rtx4090", "rtx3090"];

let client;

/** The settings of the section, as the server takes them. */
function options() {
  const settings = vscode.workspace.getConfiguration(SECTION);
  return Object.fromEntries(OPTIONS.map((name) => [name, settings.get(name)]));
}

/** The command that starts the server, and its arguments. */
async function command() {
  const own = vscode.workspace.getConfiguration(SECTION).get("command");
  if (own && own.length > 0) {
    return own;
  }
  const python = vscode.extensions.getExtension("ms-python.python");
  if (python) {
    const api = python.isActive ? python.exports : await python.activate();
    const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
    const details = api.settings?.getExecutionDetails?.(folder);
    if (details?.execCommand?.length) {
      return [...details.execCommand, "-m", "memlint", "lsp"];
    }
  }
  return ["memlint", "lsp"];
}

async function start() {
  const [program, ...args] = await command();
  client = new LanguageClient(
    SECTION,
    SECTION,
    { command: program, args },
    {
      documentSelector: [{ scheme: "file", language: "python" }],
      initializationOptions: options(),
    },
  );
  try {
    await client.start();
  } catch (error) {
    const message = `memlint does not start: ${error.message}. Install it with: pip install 'torch-memlint[lsp]'`;
    vscode.window.showErrorMessage(message);
  }
}

/** Ask the server to do something, with the file that is shown. */
function withFile(name) {
  return async () => {
    const document = vscode.window.activeTextEditor?.document;
    if (document && client) {
      await client.sendRequest("workspace/executeCommand", { command: name, arguments: [document.uri.toString()] });
    }
  };
}

/** Ask for one of GPU, batch and dtype, and have what was traced traced again with it. */
async function choose() {
  const name = await vscode.window.showQuickPick(["gpu", "batch", "dtype"], { placeHolder: "What to change" });
  if (!name || !client) {
    return;
  }
  const prompt = `${name}; empty: what the code says`;
  const value =
    name === "batch"
      ? await vscode.window.showInputBox({ prompt, validateInput: (text) => (/^\d*$/.test(text) ? null : "A number.") })
      : await vscode.window.showQuickPick(["", ...(name === "gpu" ? GPUS : DTYPES)], { placeHolder: prompt });
  if (value === undefined) {
    return;
  }
  const changed = value === "" ? null : name === "batch" ? Number(value) : value;
  const request = { command: "memlint.change", arguments: [{ [name]: changed }] };
  await client.sendRequest("workspace/executeCommand", request);
}

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("memlint.traceFile", withFile("memlint.trace")),
    vscode.commands.registerCommand("memlint.runFile", withFile("memlint.run")),
    vscode.commands.registerCommand("memlint.choose", choose),
    vscode.commands.registerCommand("memlint.restart", async () => {
      await client?.stop();
      await start();
    }),
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      if (event.affectsConfiguration(SECTION) && client) {
        await client.sendNotification("workspace/didChangeConfiguration", { settings: { [SECTION]: options() } });
      }
    }),
  );
  await start();
}

async function deactivate() {
  await client?.stop();
}

module.exports = { activate, deactivate };
