"""Starts the llamatap program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .run import Run

__all__ = ["ProgramError", "find_program", "record"]

_RUN = re.compile(r"^ {10}run {7}(.+)$", re.MULTILINE)  # the end of the summary that llamatap prints


# Flags that choose tensors; without one of them the program refuses --tap-dtype.
_TENSORS = ("--tap-preset", "--tap-purpose", "--tap-granularity", "--tap-layer", "--tap-tensor", "--tap-point",
            "--tap-attention", "--tap-config")


class ProgramError(RuntimeError):
    """llamatap ended with an error; the text is its own."""


def find_program() -> str:
    """Returns the program: ``$LLAMATAP``, or ``llamatap`` on the PATH. Raises FileNotFoundError where there is none."""
    program = os.environ.get("LLAMATAP") or shutil.which("llamatap")
    if not program:
        raise FileNotFoundError("the llamatap program is not on the PATH: install it, or set LLAMATAP to its path")
    return program


def _line(prompt: str | Sequence[int] | dict[str, Any]) -> dict[str, Any]:
    """The line of a file of prompts: of a text, of token ids, or of such a line."""
    if isinstance(prompt, dict):
        return prompt
    return {"prompt": prompt if isinstance(prompt, str) else [int(i) for i in prompt]}


def record(model: str | os.PathLike[str] | None, prompts: str | Iterable[str | Sequence[int] | dict[str, Any]], *,
           points: Iterable[str] = (), tensors: Iterable[str] = (), layers: str | Iterable[int] | None = None,
           n_predict: int = 1, dtype: str | None = "f32", out: str | os.PathLike[str] | None = None,
           args: Iterable[str] = ()) -> Run:
    """Runs prompts through a model and records them; returns the run.

    model: a GGUF file; None is the model that llamatap embeds.
    prompts: texts, lists of token ids, or objects as in PROMPTS.md (``{"prompt": [1, 2, 3], "seed": 7}``).
    points, tensors, layers: what to capture: named points (POINTS.md), tensors by name (``l_out*``), layers
    (``"0-3,7"`` or ``[0, 1, 2, 3, 7]``).
    n_predict: tokens to generate for each prompt. The last one is never computed, so it has no tensors.
    dtype: how floats are stored: f32, f16 or bf16. None leaves that to args: the codecs q and q-fse, which presets such
    as balanced have, decide it themselves.
    out: the folder of runs; None is a new temporary folder, which stays: remove it when the run is no longer needed.
    args: further flags of ``llamatap run``, such as ``["-ngl", "99", "--tap-resource-level", "DETAILED"]``.

    What was generated is in ``run.results``. A prompt that fails beside others, such as one that is too long, has
    ``error`` there, with a warning. Greedy unless args say otherwise.
    Raises ValueError if nothing is to be recorded, ProgramError with what llamatap printed if it recorded nothing.
    """
    given = [prompts] if isinstance(prompts, str) else list(prompts)
    capture = {"--tap-point": _joined(points), "--tap-tensor": _joined(tensors),
               "--tap-layer": _joined(layers if layers is not None else ())}
    if layers is not None and not capture["--tap-layer"]:
        raise ValueError("layers is empty: leave it out for all layers")
    flags = [word for flag, value in capture.items() if value for word in (flag, value)]
    flags += [os.fspath(a) for a in args]
    if not any(f.startswith("--tap-") for f in flags):
        raise ValueError("nothing to record: give points=, tensors= or layers=, or a flag such as --tap-kv in args=")
    if dtype is not None and any(f.startswith(_TENSORS) for f in flags):
        flags = ["--tap-dtype", dtype, *flags]
    folder = os.fspath(out) if out is not None else tempfile.mkdtemp(prefix="llamatap-")
    try:
        results, done = _generate(model, [_line(p) for p in given], [
            "-n", str(n_predict), "--temp", "0", "--tap-out", folder, *flags])
        failed = [r for r in results if "error" in r]
        if not (done.returncode == 1 and 0 < len(failed) < len(results)):
            _check(done)
        directories = _RUN.findall(done.stderr)
        if not directories:
            raise ProgramError(f"llamatap printed no run directory: {done.stderr.strip() or 'it printed nothing'}")
        run = Run(directories[-1])
    except BaseException:
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    run.results = results
    if failed:
        warnings.warn(f"{len(failed)} of {len(given)} prompts failed, see run.results: line {failed[0]['line']}: "
                      f"{failed[0]['error']}", stacklevel=2)
    return run


def complete(model: str | os.PathLike[str] | None, lines: list[dict[str, Any]],
             args: list[str]) -> list[dict[str, Any]]:
    """Runs the lines of a prompt file through a model with ``llamatap run``; returns the results (PROMPTS.md)."""
    results, done = _generate(model, lines, args)
    _check(done)
    return results


def call(*args: str) -> None:
    """Runs llamatap. Raises ProgramError with what it printed where it fails."""
    _check(_start(*args))


def _generate(model: str | os.PathLike[str] | None, lines: list[dict[str, Any]],
              args: list[str]) -> tuple[list[dict[str, Any]], subprocess.CompletedProcess[str]]:
    with tempfile.TemporaryDirectory() as work:
        asked, results = Path(work, "prompts.jsonl"), Path(work, "results.jsonl")
        asked.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        done = _start("run", "--prompts", str(asked), "--results", str(results),
                      *(["-m", os.fspath(model)] if model is not None else []), *args)
        text = results.read_text(encoding="utf-8") if results.exists() else ""
        return [json.loads(line) for line in text.split("\n")[:-1]], done


def _start(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([find_program(), *args], check=False, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)


def _check(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:
        raise ProgramError(done.stderr.strip() or f"llamatap ended with status {done.returncode}")


def _joined(selected: str | Iterable[object]) -> str:
    return selected if isinstance(selected, str) else ",".join(map(str, selected))
