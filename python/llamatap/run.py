"""A recorded run: its metadata, tokens, tensors, events and tables."""

from __future__ import annotations

import bisect
import builtins
import hashlib
import json
import math
import os
import re
import subprocess
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .stream import Tensor, read, repair
from .tokens import Token, read_tokens

if TYPE_CHECKING:
    import pyarrow
    import torch

__all__ = ["Activations", "Run", "open"]

_METADATA = "metadata.json"
_STREAM = "activations.stream"
_RUN = re.compile(r"run_[0-9]{8}_[0-9]{6}_[0-9a-f]+$")
_SUFFIX = re.compile(r"-[0-9]+(?=(#[0-9]+)?$)")  # of a layer

# What run.arrow() reads, and which file it is.
_TABLES = {
    "ledger": "trace.parquet",
    "kv": "kv_block_lifecycle.parquet",
    "regions": "region_map.parquet",
}


@dataclass(frozen=True, slots=True)
class Activations:
    """A tensor over all executions of the graph: ``values[i]`` belongs to the token ``tokens[i]``."""

    name: str
    layer: int | None
    values: np.ndarray  #: [rows, ...]; [executions, ...] where rows are not tokens
    tokens: np.ndarray | None  #: token_index of each row; None where rows are not tokens
    positions: np.ndarray | None  #: position of each row in its sequence, -1 where unknown
    executions: np.ndarray  #: number of the micro-batch of each row
    note: str = ""  #: what is to be done with the values to get the named point, if anything

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.values)

    def to_torch(self) -> torch.Tensor:
        """The values as a PyTorch tensor of the same type; it has memory of its own."""
        import torch

        return torch.from_numpy(np.array(self.values))


class Run:
    """A run directory of llamatap. Open one with ``llamatap.open``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._tokens: list[Token] | None = None
        #: What llamatap.record() generated, an object for each prompt, see PROMPTS.md; empty for a run that was opened.
        self.results: list[dict[str, Any]] = []
        try:
            #: metadata.json, see RUN_DIRECTORY.md. That of a live run holds less.
            self.metadata: dict[str, Any] = json.loads((self.path / _METADATA).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(f"{self.path}: no {_METADATA} in it: give a run directory, such as "
                                    "llamatap-runs/MODEL/run_…, or a folder with runs") from None
        except ValueError as e:
            raise ValueError(f"{self.path / _METADATA} is damaged ({e}): {repair(self.path)}") from e
        for folder in [self.path, *self._parts()]:
            _check_sizes(folder)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def sealed(self) -> bool:
        """Whether the run is complete; a live one and one that was killed are not."""
        try:
            return _manifest(self.path) is not None
        except ValueError:
            return False

    @property
    def tokens(self) -> list[Token]:
        """The tokens that the model computed, prompt included, by token_index."""
        if self._tokens is None or not self.sealed:
            self._tokens = [t for part in self._parts() for t in read_tokens(part)]
        return self._tokens

    def token(self, token_index: int) -> Token:
        """The token of a row: ``run.token(x.tokens[i])``. Raises KeyError where it was removed or is not there."""
        tokens = self.tokens  # of a live run, each time read anew
        at = bisect.bisect_left(tokens, token_index, key=lambda t: t.token_index)
        if at == len(tokens) or tokens[at].token_index != token_index:
            raise KeyError(f"the run has no token {token_index}")
        return tokens[at]

    @property
    def points(self) -> list[dict[str, Any]]:
        """The named points that were recorded: ctx, point, layer, tensor, how (served or recomputed) and why."""
        return self.metadata.get("extra", {}).get("points") or []

    @property
    def text(self) -> str:
        """The texts of all tokens in the order in which they were computed."""
        return b"".join(t.token_bytes for t in self.tokens).decode(errors="replace")

    def packets(self, name: str | None = None, layer: int | None = None) -> Iterator[Tensor]:
        """Yields captured tensors one execution at a time, in the order of the stream, in bounded memory.

        name is a tensor (``l_out`` or ``l_out-3``), None for all; layer selects one layer.
        """
        for part in self._parts():
            if (part / _STREAM).exists():
                yield from read(part / _STREAM, lambda n, at: _matches(n, at, name, layer))

    def names(self) -> dict[str, list[int]]:
        """The captured tensors without their layer suffix, each with its layers."""
        found: dict[str, set[int]] = {}

        def note(name: str, layer: int | None) -> bool:
            found.setdefault(_base(name), set()).update([] if layer is None else [layer])
            return False

        for part in self._parts():
            if (part / _STREAM).exists():
                for _ in read(part / _STREAM, note):
                    pass
        return {name: sorted(layers) for name, layers in found.items()}

    def tensor(self, name: str, layer: int | None = None, *, phase: str | None = None, seq: int | None = None,
               ctx: int = 0) -> Activations:
        """Returns a tensor or a named point over the whole run.

        name: a named point that was recorded (``resid_post``), or a tensor (``l_out``, ``l_out-3``).
        layer: needed where the tensor was captured of several layers.
        phase, seq, ctx: only rows of ``prefill`` or ``decode``, of one sequence, of one context.

        Values have the type that was stored (float16 unless ``--tap-dtype`` says otherwise). Raises KeyError for what
        was not captured, ValueError where rows differ in shape, as attention scores do: use ``packets``.
        """
        if phase not in (None, "prefill", "decode"):
            raise ValueError(f"unknown phase {phase!r}: give 'prefill' or 'decode', or leave it out")
        what = name + ("" if layer is None else f" of layer {layer}") + (f" of context {ctx}" if ctx else "")
        wanted, layer, note = self._resolve(name, layer, ctx)
        parts = [t for t in self.packets(wanted, layer) if t.ctx == ctx]
        if layer is None:  # norm is not norm-0
            parts = [t for t in parts if t.name == wanted] or parts
        layers = sorted({t.layer for t in parts if t.layer is not None})
        if not parts:
            dataset = self.metadata.get("extra", {}).get("dataset")
            if dataset:
                raise KeyError(f"{name}: the tensors of this run are in the dataset {dataset['path']}: "
                               "datasets.load_dataset reads it")
            if any(p["ctx"] == ctx and p.get("tensor") and _matches(p["tensor"], p.get("layer"), wanted, layer)
                   for p in self.points):
                raise KeyError(f"{what} has no rows: the last layer and the logits have those of tokens with an output "
                               'alone; record with n_predict of at least 1, or with args=["--all-rows"], for logits '
                               '["--all-logits"]')
            names = self.names()
            if of := names.get(_base(wanted)):
                raise KeyError(f"{what} was not captured: {_base(wanted)} has layers {of}")
            there = sorted({*names, *(p["point"] for p in self.points if p.get("tensor"))})
            raise KeyError(f"{what} was not captured; there are {', '.join(there) or 'no tensors'}")
        if len(layers) > 1:
            raise ValueError(f"{name} was captured of layers {layers}: give layer=")
        if len(names := dict.fromkeys(t.name for t in parts)) > 1:  # of a repaired run whose layers are unknown
            raise ValueError(f"{name} is several tensors: give one of {', '.join(names)}")
        if len({t.array.shape[1:] if t.tokens is not None else t.array.shape for t in parts}) > 1:
            raise ValueError(f"the rows of {name} differ in shape: go through run.packets({wanted!r}, {layer})")
        if note:
            warnings.warn(f"{name} is recorded as {parts[0].name}: {note}", stacklevel=2)
        return self._join(parts, note, phase, seq)

    def _join(self, parts: list[Tensor], note: str, phase: str | None, seq: int | None) -> Activations:
        first = parts[0]
        if first.tokens is None:
            if phase is not None or seq is not None:
                raise ValueError(f"the rows of {first.name} are not tokens: leave phase and seq out")
            return Activations(first.name, first.layer, np.stack([t.array for t in parts]), None, None,
                               np.array([t.execution for t in parts]), note)
        values = np.concatenate([t.array for t in parts])
        tokens = np.concatenate([t.tokens for t in parts if t.tokens is not None])
        positions = np.concatenate([t.positions for t in parts if t.positions is not None])
        executions = np.repeat([t.execution for t in parts], [len(t.array) for t in parts])
        if phase is not None or seq is not None:
            by_index = {t.token_index: t for t in self.tokens}
            of = [by_index[i] for i in tokens.tolist()]
            keep = np.array([phase in (None, t.phase) and seq in (None, *t.seq_ids) for t in of], bool)
            values, tokens, positions, executions = values[keep], tokens[keep], positions[keep], executions[keep]
        return Activations(first.name, first.layer, values, tokens, positions, executions, note)

    def _resolve(self, name: str, layer: int | None, ctx: int) -> tuple[str, int | None, str]:
        found = [p for p in self.points if p["point"] == name and p["ctx"] == ctx]
        if not found:
            return name, layer, ""
        of = [p for p in found if layer is None or p.get("layer") == layer]
        if len(of) != 1:
            layers = sorted(p["layer"] for p in found if p.get("layer") is not None)
            if not layers:
                raise KeyError(f"the point {name} belongs to the model: leave layer= out")
            raise KeyError(f"the point {name} was recorded of layers {layers}: give one of them as layer=")
        if not of[0].get("tensor"):
            raise KeyError(f"the point {name} is impossible here: {of[0].get('why', '')}")
        return of[0]["tensor"], None, of[0].get("why", "") if of[0]["how"] == "recomputed" else ""

    def events(self, type: str | None = None) -> Iterator[dict[str, Any]]:
        """Yields resource events, see EVENTS.md, in the order in which they were written; of one type or all."""
        for path in sorted(self.path.glob("resource*.jsonl"), key=_number):
            with builtins.open(path, encoding="utf-8") as f:
                for line in f:
                    if line.endswith("\n"):  # the last line of a live run may be half written
                        event = json.loads(line)
                        if type is None or event["event"] == type:
                            yield event

    def arrow(self, table: str) -> pyarrow.Table:
        """Returns a table: tokens, events, ledger, kv or regions. Needs pyarrow.

        Raises FileNotFoundError where the run did not record it.
        """
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise ImportError("tables need pyarrow: pip install llamatap[arrow]") from None
        if table == "tokens":
            return pyarrow.Table.from_pylist([{f: getattr(t, f) for f in Token.__slots__} for t in self.tokens])
        if table == "events":
            events = list(self.events())
            if not events:
                raise FileNotFoundError(f"{self.path} has no events: they are recorded with --tap-resource-level")
            names = dict.fromkeys(name for event in events for name in event)
            return pyarrow.table({name: [event.get(name) for event in events] for name in names})
        if table not in _TABLES:
            raise ValueError(f"no table is called {table}; there are tokens, events, {', '.join(_TABLES)}")
        name = _TABLES[table]
        parts = sorted(self.path.glob(name.replace(".parquet", ".[0-9]*.parquet")), key=_number)
        files = [self.path / name] if (self.path / name).exists() else parts
        if not files:
            live = "" if self.sealed else "; a live run has none yet, and one that was killed has lost it"
            raise FileNotFoundError(f"{self.path} has no {name}: it is recorded with --tap-{table}{live}")
        return pyarrow.concat_tables([pyarrow.parquet.read_table(f) for f in files])

    def dataset(self, to: str | os.PathLike[str], *, tensors: list[str] | None = None, layers: str | None = None,
                seed: int = 0, args: list[str] | None = None) -> Any:
        """Writes the run as shuffled Parquet shards (``llamatap export --to dataset``) and loads them.

        Returns ``datasets.load_dataset(to)``'s split, or the folder where the datasets package is not installed.
        """
        from .program import ProgramError, find_program

        command = [find_program(), "export", str(self.path), "--to", "dataset", "-o", os.fspath(to)]
        command += ["--seed", str(seed)]
        command += ["--tensor", ",".join(tensors)] if tensors else []
        command += ["--layer", layers] if layers else []
        done = subprocess.run(command + (args or []), check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise ProgramError(done.stderr.strip())
        try:
            from datasets import load_dataset
        except ImportError:
            return Path(to)
        return load_dataset(os.fspath(to), split="train")

    def _parts(self) -> list[Path]:
        return sorted(self.path.glob("seg-[0-9]*"), key=_number) or [self.path]


def open(path: str | os.PathLike[str] = "llamatap-runs") -> Run:
    """Opens a run directory, or the newest run below a folder.

    Raises FileNotFoundError where there is none.
    """
    path = Path(path)
    if (path / _METADATA).exists():
        return Run(path)
    runs = sorted((p for p in path.glob("**/run_*") if _RUN.match(p.name) and (p / _METADATA).exists()), key=_age)
    return Run(runs[-1] if runs else path)


def _age(run: Path) -> tuple[str, float]:
    """The second in which a run began, and when it was sealed: a live one is the newest of its second."""
    try:
        sealed = (run / "manifest.json").stat().st_mtime
    except OSError:
        sealed = math.inf
    return run.name[:len("run_20060102_150405")], sealed


def _manifest(folder: Path) -> dict[str, Any] | None:
    """manifest.json; None where there is none. Raises ValueError where it is not what was sealed."""
    path = folder / "manifest.json"
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    damaged = ValueError(f"{path} is damaged: copy the run again, or see llamatap verify {folder}")
    try:
        manifest: dict[str, Any] = json.loads(text)
        if "manifest_schema_version" in manifest:  # mrm-trace wrote the run
            return {"files": [{"name": f["path"], "size": f["size_bytes"]} for f in manifest["files"]]}
        version, own = manifest["version"], manifest.get("sha256", "").encode()
        names = {"version", "run_id", "sealed", "files", "sha256"}
        if version not in (1, 2) or manifest.keys() - names or (len(own) == 64) != (version == 2):
            raise damaged
        if own:
            before, _, after = text.rpartition(own)
            if hashlib.sha256(before + b"0" * 64 + after).hexdigest().encode() != own:
                raise damaged
        [(f["name"], f["size"]) for f in manifest["files"] or []]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise damaged from None
    return manifest


def _check_sizes(folder: Path) -> None:
    """Raises ValueError where a file of a sealed folder is not as large as it was: the copy of a run was cut short."""
    manifest = _manifest(folder)
    for f in manifest["files"] or [] if manifest else []:
        path = folder / f["name"]
        if path.is_file() and path.stat().st_size != f["size"]:
            raise ValueError(f"{path} has {path.stat().st_size} bytes, the run had {f['size']}: copy the run again, or "
                             f"see llamatap verify {folder}")


def _base(name: str) -> str:
    return _SUFFIX.sub("", name)


def _matches(name: str, at: int | None, wanted: str | None, layer: int | None) -> bool:
    return (wanted is None or wanted in (name, _base(name))) and (layer is None or at == layer)


def _number(path: Path) -> int:
    """The number of a segment or a part; -1 where the name has none, as that of the first file of events."""
    number = re.search("[.-]([0-9]+)", path.name)
    return int(number[1]) if number else -1
