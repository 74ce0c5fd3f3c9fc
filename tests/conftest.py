"""Fixtures of every test: golden files with an update flag, a clean compiler state, tools that may be missing."""

from __future__ import annotations

import dataclasses
import gc
import math
import os
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile("lab", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("lab")

GOLDEN = Path(__file__).parent / "golden"


def pytest_collection_finish() -> None:
    """What collecting has made stays to the end: thousands of tests, and torch. The collections that tests ask for do not walk it."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing with them")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)``: text equals tests/golden/NAME; with --update-golden the file is written."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text + "\n")
        assert path.exists(), f"{name} has no golden file: run pytest with --update-golden and read what it wrote"
        assert text + "\n" == path.read_text()

    return compare


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels of the tests are built in a folder of their own, shared within the session; captured entries are kept by tests that ask for them."""
    os.environ["COMPILER_LAB_ENTRIES"] = "0"
    root = os.environ.get("COMPILER_LAB_TEST_CACHE") or str(tmp_path_factory.mktemp("cache"))
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = root
    yield
    os.environ.pop("XDG_CACHE_HOME") if before is None else os.environ.update(XDG_CACHE_HOME=before)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def through_the_hook() -> bool:
    """Whether all Python goes through torch's frame hook: the caller of a function then holds its arguments to the end of the call."""

    def dropped(value: Any, ref: weakref.ref[Any]) -> bool:
        del value
        return ref() is None

    values = [torch.nn.Module()]
    ref = weakref.ref(values[0])
    return not dropped(values.pop(), ref)


@pytest.fixture
def unhooked() -> None:
    """Python as it is at the start of a process: ``torch.compile`` leaves the hook on where its backend raises."""
    from compiler_lab.frames.hook import frame_hook

    for _ in range(1000):
        if not through_the_hook():
            return
        frame_hook().uncount()
    pytest.fail("the hook stays on")


def require(tool: str) -> str:
    """The path of ``tool``; skips the test where it is missing, unless COMPILER_LAB_REQUIRE_ALL says that nothing may skip."""
    found = shutil.which(tool)
    if found is None:
        message = f"{tool} is not installed"
        pytest.fail(message) if os.environ.get("COMPILER_LAB_REQUIRE_ALL") else pytest.skip(message)
    return found


def run_threads(targets: list[Callable[[], Any]]) -> None:
    """Runs them at once and raises what they raise."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(targets))

    def run(target: Callable[[], Any]) -> None:
        try:
            barrier.wait()
            target()
        except BaseException as error:  # noqa: BLE001 - it is raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(t,)) for t in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    assert not any(t.is_alive() for t in threads)


def same(got: Any, want: Any, **tolerance: Any) -> None:
    """Equal in type and value, all the way down; tensors in all that a program can ask of them, within ``tolerance`` (rtol, atol)."""
    assert type(got) is type(want), (got, want)
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want, equal_nan=True, check_stride=want.layout is torch.strided, **tolerance)
        assert got.requires_grad == want.requires_grad
    elif isinstance(want, (tuple, list)):
        for a, b in zip(got, want, strict=True):
            same(a, b, **tolerance)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key in want:
            same(got[key], want[key], **tolerance)
    elif dataclasses.is_dataclass(want):
        same(vars(got), vars(want), **tolerance)
    else:
        assert got == want or (isinstance(want, float) and math.isnan(want) and math.isnan(got)), (got, want)


FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = require("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(params=["light", "dark"])
def context(chromium: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A window of the module's size ``WINDOW``, with the network off."""
    width, height = request.module.WINDOW
    made = chromium.new_context(color_scheme=request.param, reduced_motion="reduce", viewport={"width": width, "height": height})
    made.set_offline(True)
    yield made
    made.close()
