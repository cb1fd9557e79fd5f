"""One module or folder for each command: from what was typed to its result. Nothing here prints or exits."""
