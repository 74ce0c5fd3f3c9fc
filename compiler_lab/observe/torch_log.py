"""The structured log of the real compiler: records, from a file or as they are made.

In: a log file of a job that ran with ``TORCH_TRACE`` set, or ``logging.LogRecord``s of the same logger. Out: ``Record``s in order.
Always holds: a record of a file is whole: its payload has the hash that its head gives; what is not is left out and counted.
PyTorch's counterpart: ``torch/_logging/_internal.py`` (``trace_structured``) writes it, tlparse reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.errors import InvalidIR

HEAD = re.compile(r"^[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ .*?:\d+\] ?(\{.*)$")
PREFIX = "dedicated_log_torch_trace_"
CONTEXT = ("rank", "compiled_autograd_id", "frame_id", "frame_compile_id", "attempt", "severity", "timestamp", "pathname", "thread", "subgraph_name", "stack")
HINT = "run the job with TORCH_TRACE=FOLDER and open that folder or one of its logs"


@dataclass(frozen=True)
class Record:
    """``kind``: the record's own name, of an artifact the artifact's. ``compile``: the compile id, "frame/compile", "" outside compiles."""

    kind: str
    data: Any = None
    payload: str = ""
    compile: str = ""
    attempt: int = 0


@dataclass
class Log:
    """The records of one process, and what of its file could not be read. ``names`` are its interned strings."""

    records: list[Record] = field(default_factory=list[Record])
    names: dict[int, str] = field(default_factory=dict[int, str])
    lost: int = 0


def record_of(head: Mapping[str, Any], payload: str) -> Record | None:
    """None for a head that names nothing."""
    kind = next((k for k in head if k not in CONTEXT and k != "has_payload"), None)
    if kind is None:
        return None
    data = head[kind]
    compile_id = "" if head.get("frame_id") is None else f"{head['frame_id']}/{head.get('frame_compile_id', 0)}"
    if head.get("compiled_autograd_id") is not None:
        compile_id = f"!{head['compiled_autograd_id']}" + (f"/{compile_id}" if compile_id else "")
    if kind == "chromium_event":
        data = json.loads(payload)
        said = (data.get("args") or {}).get("compile_id")
        compile_id = compile_id or (said if said not in (None, "None") else "")
    elif kind == "artifact":
        kind = str(data["name"])
    return Record(kind, data, payload, compile_id, int(head.get("attempt") or 0))


def read_log(path: Path) -> Log:
    """The records of one file. Raises ``InvalidIR`` where it holds none."""
    log, found = Log(), False
    text = path.read_bytes().decode(errors="replace")  # as bytes: newlines of a payload belong to its hash
    for head, payload in _blocks(text):
        found = True
        if not _is_whole(head, payload):
            log.lost += 1
            continue
        if "str" in head:
            name, number = head["str"]
            log.names[int(number)] = str(name)
        elif (record := record_of(head, payload)) is not None:
            log.records.append(record)
    if not found:
        why = "the file is empty" if not text.strip() else "no line of it is a record of torch's structured log"
        raise InvalidIR(f"{path.name} is not a log of torch.compile", why=why, hint=HINT)
    if not log.records:
        raise InvalidIR(f"{path.name} holds no whole record", why=f"{log.lost} cut off or changed", hint=HINT)
    return log


def _blocks(text: str) -> Iterator[tuple[dict[str, Any], str]]:
    """(head, payload): the payload's lines follow their head, each after a tab. A head that is cut off is {}."""
    head: dict[str, Any] | None = None
    payload: list[str] = []
    for line in text.split("\n"):
        if line.startswith("\t"):
            payload.append(line[1:])
        elif found := HEAD.match(line):
            if head is not None:
                yield head, "\n".join(payload)
            head, payload = _json(found[1]), []
    if head is not None:
        yield head, "\n".join(payload)


def _json(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except ValueError:
        return {}


def _is_whole(head: Mapping[str, Any], payload: str) -> bool:
    if "has_payload" not in head:
        return bool(head)
    return hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest() == head["has_payload"]


def log_files(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """The file itself, or the logs of a folder, oldest name first. Raises ``InvalidIR`` where there are none, ``FileNotFoundError`` for nothing."""
    target = Path(path)
    if not target.is_dir():
        target.stat()
        return (target,)
    found = sorted(target.glob(f"{PREFIX}*.log")) or sorted(target.glob("*.log"))
    if not found:
        raise InvalidIR(f"{target.name} holds no log of torch.compile", why=f"no file {PREFIX}*.log in it", hint=HINT)
    return tuple(found)
