"""What the project asks for: pyproject.toml, environment.yml and constraints.txt say the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONDA_NAMES = {"graphviz": "python-graphviz", "torch": "pytorch", "playwright": "playwright-python"}


def requirements() -> dict[str, str]:
    """name -> version range, over the dependencies and every extra of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    return dict(_split(line) for line in lines)


def _split(line: str) -> tuple[str, str]:
    match = re.fullmatch(r"([A-Za-z0-9_.-]+?)\s*([<>=!~].*)?", line.strip())
    assert match, line
    return match[1].lower(), (match[2] or "").replace(" ", "")


def conda() -> dict[str, str]:
    text = (ROOT / "environment.yml").read_text().split("dependencies:")[1]
    return dict(_split(m) for m in re.findall(r"^(?:  |      )- ([^-:\n#][^:\n#]*)$", text, re.MULTILINE))


def test_conda_asks_for_what_pip_asks_for() -> None:
    wanted = {CONDA_NAMES.get(n, n): v for n, v in requirements().items()}
    found = conda()
    assert {n: found.get(n) for n in wanted} == wanted
    tools = {"python", "pip", "cxx-compiler", "binutils", "graphviz", "nodejs", "make"}
    assert set(found) - set(wanted) == tools


def test_each_dependency_has_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for name in requirements():
        assert re.search(rf'^  "{name}[^"]*",\s+# \S', text, re.MULTILINE | re.IGNORECASE), f"{name} has no reason beside it"


def test_constraints_pin_what_is_asked_for() -> None:
    pins = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    normal = {re.sub(r"[-_.]+", "-", n).lower(): v for n, v in pins.items()}
    missing = [n for n in requirements() if re.sub(r"[-_.]+", "-", n) not in normal]
    assert not missing
    assert normal["torch"] == "2.13.0"


@pytest.mark.parametrize("name", ["README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "environment.yml"])
def test_the_project_has_its_papers(name: str) -> None:
    assert (ROOT / name).read_text().strip()
