"""Starts the llamatap program."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .run import Run

__all__ = ["ProgramError", "find_program", "record"]


class ProgramError(RuntimeError):
    """llamatap ended with an error; the text is its own."""


def find_program() -> str:
    """Returns the program: ``$LLAMATAP``, or ``llamatap`` on the PATH. Raises FileNotFoundError where there is none."""
    program = os.environ.get("LLAMATAP") or shutil.which("llamatap")
    if not program:
        raise FileNotFoundError("the llamatap program is not on the PATH: install it, or set LLAMATAP to its path")
    return program


def record(model: str | os.PathLike[str] | None, prompts: str | Iterable[str | dict[str, Any]], *,
           points: Iterable[str] = (), tensors: Iterable[str] = (), layers: str | None = None, n_predict: int = 1,
           dtype: str = "f32", out: str | os.PathLike[str] | None = None, args: Iterable[str] = ()) -> Run:
    """Runs prompts through a model and records them; returns the run.

    model: a GGUF file; None is the model that llamatap embeds.
    prompts: texts, or objects as in PROMPTS.md (``{"prompt": [1, 2, 3], "seed": 7}``).
    points, tensors, layers: what to capture: named points (POINTS.md), tensors by name (``l_out*``), layers
    (``0-3,7``).
    n_predict: tokens to generate for each prompt. The last one is never computed, so it has no tensors.
    dtype: how floats are stored: f32, f16 or bf16.
    out: the folder of runs; a temporary one that nothing removes if it is None.
    args: further flags of ``llamatap run``, such as ``["-ngl", "99", "--tap-resource-level", "DETAILED"]``.

    What was generated is in ``run.results``. Greedy unless args say otherwise.
    Raises ProgramError with what llamatap printed.
    """
    out = Path(out if out is not None else tempfile.mkdtemp(prefix="llamatap-"))
    given = [prompts] if isinstance(prompts, str) else list(prompts)
    before = set(out.glob("*/run_*"))
    command = ["-n", str(n_predict), "--temp", "0", "--tap-out", str(out), "--tap-dtype", dtype]
    command += ["--tap-points", ",".join(points)] if (points := list(points)) else []
    command += ["--tap-tensor", ",".join(tensors)] if (tensors := list(tensors)) else []
    command += ["--tap-layer", layers] if layers else []
    results = complete(model, [{"prompt": p} if isinstance(p, str) else p for p in given], [*command, *args])
    made = set(out.glob("*/run_*")) - before
    if len(made) != 1:
        raise ProgramError(f"{len(made)} runs were made in {out} meanwhile, not one: give a folder of its own as out=")
    run = Run(made.pop())
    run.results = results
    return run


def complete(model: str | os.PathLike[str] | None, lines: list[dict[str, Any]],
             args: list[str]) -> list[dict[str, Any]]:
    """Runs the lines of a prompt file through a model with ``llamatap run``; returns the results (PROMPTS.md)."""
    with tempfile.TemporaryDirectory() as work:
        asked, results = Path(work, "prompts.jsonl"), Path(work, "results.jsonl")
        asked.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        call("run", "--prompts", str(asked), "--results", str(results),
             *(["-m", os.fspath(model)] if model is not None else []), *args)
        return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]


def call(*args: str) -> None:
    """Runs llamatap. Raises ProgramError with what it printed where it fails."""
    done = subprocess.run([find_program(), *args], check=False, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)
    if done.returncode != 0:
        raise ProgramError(done.stderr.strip() or f"llamatap ended with status {done.returncode}")
