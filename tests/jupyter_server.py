"""JupyterLab as a process of its own, for the browser tests: one server, its folders temporary, nothing of the user's touched."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

ROOT = Path(__file__).parent.parent
EXTENSION = ROOT / "widgets" / "labextension"
TOKEN = "tests"
QUIET = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}  # it asks for news in the network


def environment(folder: Path) -> dict[str, str]:
    """The process's environment with every folder of Jupyter's under ``folder``; what is installed beside Python is found as ever, after
    those: the extension is the checkout's, and not the copy that an install made."""
    own = {"CONFIG_DIR": "config", "DATA_DIR": "data", "RUNTIME_DIR": "runtime"}
    jupyter = {f"JUPYTER_{k}": str(folder / v) for k, v in own.items()} | {f"JUPYTERLAB_{k.upper()}_DIR": str(folder / k) for k in ("settings", "workspaces")}
    path = os.pathsep.join([str(ROOT), str(ROOT / "widgets"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {
        **os.environ,
        **jupyter,
        "PYTHONPATH": path,
        "IPYTHONDIR": str(folder / "ipython"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "JUPYTER_PREFER_ENV_PATH": "0",
    }


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except (URLError, OSError):
        return False


@contextmanager
def jupyterlab(folder: Path, notebooks: Path, settings: Mapping[str, Any]) -> Generator[str]:
    """The address of a running JupyterLab that shows ``notebooks`` and has the extension of this checkout. settings: plugin id -> its settings."""
    extensions = folder / "data" / "labextensions"
    extensions.mkdir(parents=True)
    (extensions / "compiler-lab").symlink_to(EXTENSION)
    (folder / "config" / "labconfig").mkdir(parents=True)
    (folder / "config" / "labconfig" / "page_config.json").write_text(json.dumps(QUIET))
    for plugin, values in settings.items():
        file = folder / "settings" / f"{plugin.replace(':', '/')}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    port = _free_port()
    options = {
        "ServerApp.port": port, "ServerApp.port_retries": 0, "ServerApp.root_dir": notebooks, "IdentityProvider.token": TOKEN, "ServerApp.open_browser": False,
        "ServerApp.allow_root": True, "LabApp.expose_app_in_browser": True, "LabApp.extension_manager": "readonly", "ServerApp.terminals_enabled": False,
    }  # fmt: skip
    command = [sys.executable, "-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items())]
    log = folder / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment(folder), cwd=notebooks, stdout=output, stderr=subprocess.STDOUT)
        address = f"http://127.0.0.1:{port}"
        try:
            until = time.monotonic() + 120
            while not _answers(f"{address}/api?token={TOKEN}"):
                assert process.poll() is None and time.monotonic() < until, log.read_text()[-3000:]
                time.sleep(0.2)
            yield address
        finally:
            process.terminate()
            process.wait(30)
