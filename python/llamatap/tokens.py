"""The tokens of a run: from activations_tokens.json or, where a live or killed run has none yet, from the index."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .codecs import Fields
from .stream import records, repair

__all__ = ["Token", "read_tokens"]

_EXECUTION, _RESOLUTION, _REQUEST, _GAP, _TEXT = 3, 6, 128, 129, 130
_PHASES = ["unknown", "setup", "maintenance", "prefill", "decode", "teardown"]
_SETUP = 1


@dataclass(frozen=True, slots=True)
class Token:
    """A token that the model computed. ``run.token(token_index)`` finds it; it is at that place of ``run.tokens`` only
    where no segment was removed.
    """

    token_index: int
    token_id: int
    text: str
    phase: str  #: "prefill" or "decode"; "unknown" for the newest ones of a live run
    pos: int | None  #: position in its sequence
    seq_id: int | None
    request: int | None
    ctx: int
    token_bytes: bytes = b""  #: of the text; a token may hold a part of a character, which is U+FFFD in text
    seq_ids: tuple[int, ...] = ()  #: all its sequences; several may share a prompt


def read_tokens(part: Path) -> list[Token]:
    """Returns the tokens of a run directory or of a segment."""
    path = part / "activations_tokens.json"
    try:
        return [_token(t) for t in json.loads(path.read_bytes())["tokens"]]
    except ValueError as e:
        raise ValueError(f"{path} is damaged ({e}): {repair(part)}") from e
    except FileNotFoundError:
        pass
    try:
        return _indexed((part / "activations.stream.idx").read_bytes())
    except FileNotFoundError:
        return []


def _token(t: dict[str, Any]) -> Token:
    return Token(t["token_index"], t["token_id"], t["token_text"], t["phase"], t.get("pos"), t.get("seq_id"),
                 t.get("request"), t.get("ctx", 0),
                 base64.b64decode(t["token_bytes"]) if "token_bytes" in t else t["token_text"].encode(),
                 tuple(t.get("seq_ids") or ([t["seq_id"]] if "seq_id" in t else [])))


@dataclass(slots=True)
class _Row:
    index: int
    token: int
    phase: int
    pos: int
    seqs: tuple[int, ...]
    request: int | None


def _indexed(index: bytes) -> list[Token]:
    """Reads the tokens from the records of an index, see INDEX_FORMAT.md."""
    texts: dict[tuple[int, int], bytes] = {}
    requests: dict[tuple[int, int], int] = {}  # the current one of a context's sequence
    executions: dict[tuple[int, int], list[_Row]] = {}  # of a context and a number
    newest = 0  # number of an execution
    for kind, f, _ in records(index):
        if kind == _TEXT:
            key = f.uint(), f.int()
            texts[key] = f.bytes(f.uint())
        elif kind == _REQUEST:
            key = f.uint(), f.int()
            requests[key] = f.uint()
        elif kind == _GAP:
            requests.clear()
        elif kind == _EXECUTION:
            number, _, ctx = f.uint(), f.uint(), f.uint()
            newest = max(newest, number)
            executions.setdefault((ctx, number), []).extend(_rows(f, ctx, requests))
        elif kind == _RESOLUTION:
            ctx, first, last, (phase,) = f.uint(), f.uint(), f.uint(), f.bytes(1)
            for number in range(first, min(last, newest) + 1):
                for row in executions.get((ctx, number), []):
                    row.phase = phase
    tokens = []
    for (ctx, _), rows in executions.items():
        for r in rows:
            if r.phase != _SETUP and r.index >= 0:
                piece = texts.get((ctx, r.token), b"")
                tokens.append(Token(r.index, r.token, _text(piece), _PHASES[r.phase], r.pos,
                                    r.seqs[0] if r.seqs else None, r.request, ctx, piece, r.seqs))
    return tokens


def _rows(f: Fields, ctx: int, requests: dict[tuple[int, int], int]) -> list[_Row]:
    f.bytes(1), f.int(), f.int()
    first, rows = f.int(), []
    for i in range(f.uint()):
        phase, _ = f.bytes(2)
        index, token, pos = first + i + f.int(), f.int(), f.int()
        seqs = tuple(f.int() for _ in range(f.uint()))
        rows.append(_Row(index, token, phase, pos, seqs, requests.get((ctx, seqs[0])) if seqs else None))
    return rows


def _text(piece: bytes) -> str:
    return re.sub("[\udc80-\udcff]+", "\ufffd", piece.decode(errors="surrogateescape"))
