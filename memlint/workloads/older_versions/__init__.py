"""Programs written for older versions of their packages: names, modules and arguments that the installed ones lack."""
