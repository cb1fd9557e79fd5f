"""A test process that is ready to build models, as a child is."""

import pytest


@pytest.fixture
def armed():
    """Libraries and imports as in a child."""
    from memlint.accelerator import lazy_imports
    from memlint.libraries import installation

    installation.install()
    lazy_imports.run_eagerly()
