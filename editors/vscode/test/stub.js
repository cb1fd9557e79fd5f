// A VS Code of which the extension uses as little as stands here, and a client that keeps what it is started with.
const Module = require("node:module");

const state = { settings: {}, commands: {}, clients: [], messages: [], picks: [], onConfiguration: null, python: undefined };

const vscode = {
  workspace: {
    getConfiguration: () => ({ get: (name) => state.settings[name] }),
    onDidChangeConfiguration: (listener) => {
      state.onConfiguration = listener;
      return { dispose() {} };
    },
    workspaceFolders: undefined,
  },
  extensions: { getExtension: () => state.python },
  window: {
    activeTextEditor: { document: { uri: { toString: () => "file:///project/model.py" } } },
    showErrorMessage: (message) => state.messages.push(message),
    showQuickPick: async () => state.picks.shift(),
    showInputBox: async () => state.picks.shift(),
  },
  commands: {
    registerCommand: (name, run) => {
      state.commands[name] = run;
      return { dispose() {} };
    },
  },
};

class LanguageClient {
  constructor(id, name, server, client) {
    Object.assign(this, { id, name, server, client, sent: [] });
    state.clients.push(this);
  }
  async start() {
    if (this.server.command === "missing") {
      throw new Error("spawn missing ENOENT");
    }
  }
  async stop() {
    this.stopped = true;
  }
  async sendRequest(method, params) {
    this.sent.push([method, params]);
  }
  async sendNotification(method, params) {
    this.sent.push([method, params]);
  }
}

const load = Module._load;
Module._load = (name, ...rest) =>
  name === "vscode" ? vscode : name === "vscode-languageclient/node" ? { LanguageClient } : load(name, ...rest);

module.exports = { state };
