"""``%load_ext compiler_lab``: what IPython calls. IPython is an extra of the package: the magics are imported when it does, and not before.

In: the shell. Out: nothing; the magics of ``magic.py`` are registered. PyTorch has no counterpart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Registers the magics in ``shell``."""
    from .magic import register

    register(shell)
