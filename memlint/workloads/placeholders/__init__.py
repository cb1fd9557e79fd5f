"""Placeholders for missing packages that the model itself never uses, such as cv2 for drawing or wandb for logs.

If a file cannot be imported because a package is missing, memlint imports it once more with a placeholder in the
package's place. Files may import the placeholder, name it in annotations and use it as a decorator; its functions do
nothing during imports. Any other use, above all by the model, fails and says what to install.

A script cannot be imported once more: there a finder behind all others gives each package that is missing a placeholder
at once. Those of packages that no tensor passes through do nothing, whenever they are used. All others may be called
with anything but tensors, and give placeholders; they fail where a tensor comes to them, or a number is wanted of them.

absent_packages  what is missing in this process, and what is known of it
objects          what a placeholder lets a program do with it
import_lines     the lines of the user's code that import something
finders          import hooks that give the user's files a placeholder
second_import    the import of a file once more, with placeholders for what it lacked
own_project      the user's project, found as if it was installed
no_version       what stands for a module in which only the installation writes the version
uncompiled       extensions that cannot be compiled here
"""
