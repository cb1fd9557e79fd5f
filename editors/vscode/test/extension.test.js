// What the extension does with VS Code: the command that it starts, the settings that it hands on, its own commands.
const test = require("node:test");
const assert = require("node:assert");
const { state } = require("./stub");
const manifest = require("../package.json");
const { activate, deactivate } = require("../extension");

test("the extension starts the server, hands settings on and asks it for more", async () => {
  state.settings = { command: [], gpu: "rtx4090", traceOnSave: true };
  state.python = {
    isActive: true,
    exports: { settings: { getExecutionDetails: () => ({ execCommand: ["/venv/bin/python"] }) } },
  };
  await activate({ subscriptions: [] });
  const [client] = state.clients;
  assert.deepStrictEqual(client.server, { command: "/venv/bin/python", args: ["-m", "memlint", "lsp"] });
  assert.strictEqual(client.client.initializationOptions.gpu, "rtx4090");

  await state.commands["memlint.traceFile"]();
  const params = { command: "memlint.trace", arguments: ["file:///project/model.py"] };
  assert.deepStrictEqual(client.sent.pop(), ["workspace/executeCommand", params]);

  for (const [picks, change] of [
    [["batch", "64"], { batch: 64 }],
    [["gpu", "h200"], { gpu: "h200" }],
    [["dtype", ""], { dtype: null }],
  ]) {
    state.picks = picks;
    await state.commands["memlint.choose"]();
    assert.deepStrictEqual(client.sent.pop()[1], { command: "memlint.change", arguments: [change] });
  }
  state.picks = ["batch", undefined];
  await state.commands["memlint.choose"]();
  assert.strictEqual(client.sent.length, 0);

  state.settings = { ...state.settings, batch: 16 };
  await state.onConfiguration({ affectsConfiguration: (section) => section === "memlint" });
  assert.strictEqual(client.sent.pop()[1].settings.memlint.batch, 16);

  state.settings = { command: ["missing"] };
  await state.commands["memlint.restart"]();
  assert.ok(client.stopped);
  assert.match(state.messages.pop(), /pip install 'torch-memlint\[lsp\]'/);
  await deactivate();
});

test("what the manifest lists is there", () => {
  const commands = manifest.contributes.commands.map((each) => each.command);
  assert.deepStrictEqual(commands.sort(), Object.keys(state.commands).sort());
});
