"""A GGUF model as an ``InterpModel`` of interp-engine: llama.cpp computes, quantised weights included.

    from llamatap.interp import LlamatapModel

    model = LlamatapModel("model.gguf")
    ids = model.to_tokens("Hello")[0].tolist()
    caps = asyncio.run(model.capture(ids, ["resid_post.3", "lm_head"]))

Each call starts the llamatap program, which loads the model: capture few and long prompts rather than many short ones.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

try:
    import torch
    from interp_engine import lens_stream
    from interp_engine.address import Address, to_address
    from interp_engine.api import DirectionSet, EngineDescription, LensSpec, LensStep
    from interp_engine.autograd_support import GradSupport
    from interp_engine.describe import describe_model
    from interp_engine.directions import project_by_capture
    from interp_engine.dispatch import CapabilityUnsupported
    from interp_engine.protocol import (
        Completion,
        checked_prompt_embeds,
        checked_rows,
        checked_vocab_ids,
        layer_out_of_range,
    )
    from interp_engine.residual_basis import ResidualBasis, eager_residual_basis
    from interp_engine.sampling import RecommendedSampling, SamplingSettings, resolve_sampling
    from interp_engine.steer import GenStep, steering_scope_for_call
    from interp_engine.tokenize import Tokenize
except ImportError as e:
    raise ImportError(f"llamatap.interp needs interp-engine and PyTorch ({e}): pip install 'llamatap[interp]'") from e

from .program import ProgramError, call, complete, record
from .run import Run
from .stream import Tensor
from .tokens import Token

__all__ = ["EXACT", "LlamatapModel"]

#: Flags of ``llamatap run`` that LlamatapModel takes by default: attention as matrices, with keys and values as F32.
EXACT = ("-fa", "off", "-ctk", "f32", "-ctv", "f32")

_MATRICES = ("attn_scores", "attn_probs")
_SCALE = re.compile(r"times ([^,]+)(, plus the mask)?$")
_HALF = re.compile(r"(first|second) half of each row$")


class _ProgramTokenizer:
    """The tokenizer of a GGUF file as llama.cpp has it, with as much of Hugging Face's interface as interp-engine uses.

    Every call starts the program. It has no chat template. plain is a token that ends no text.
    """

    bos_token = eos_token = pad_token = chat_template = None

    def __init__(self, model: str | os.PathLike[str] | None, plain: int) -> None:
        self._model, self._plain = model, plain

    def encode(self, text: str, **_: Any) -> list[int]:
        """The ids of a text, with those that the model begins texts with."""
        [ids] = self._tokens([text])
        if not ids:
            raise ValueError("the text is empty, or ends with a token that ends texts: give another, or a tokenizer")
        return [t.token_id for t in ids]

    def decode(self, ids: Any, **_: Any) -> str:
        """The text of ids. A token that holds a part of a character is U+FFFD."""
        return self.batch_decode([ids])[0]

    def batch_decode(self, rows: Any, **_: Any) -> list[str]:
        """The text of each row of ids."""
        asked = [[*np.asarray(row).reshape(-1).tolist(), self._plain] for row in rows]
        return [b"".join(t.token_bytes for t in row[:-1]).decode(errors="replace") for row in self._tokens(asked)]

    def __call__(self, text: str | list[str], **_: Any) -> dict[str, torch.Tensor]:
        """The ids of a text, or of several that have as many tokens, as ``input_ids`` [texts, tokens]."""
        rows = [self.encode(t) for t in ([text] if isinstance(text, str) else text)]
        if len({len(row) for row in rows}) != 1:
            raise ValueError("the texts differ in their number of tokens: give them one by one")
        return {"input_ids": torch.tensor(rows)}

    def _tokens(self, prompts: Sequence[str | list[int]]) -> list[list[Token]]:
        longest = max(len(p.encode() if isinstance(p, str) else p) for p in prompts)  # a token takes a byte at least
        with tempfile.TemporaryDirectory() as out:
            run = record(self._model, [{"prompt": p, "n_predict": 0} for p in prompts], points=["embeddings"], out=out,
                         args=["-c", str(longest + 256)])
            if failed := [r["error"] for r in run.results if "error" in r]:
                raise ProgramError(failed[0])
            return [[t for t in run.tokens if t.request == r.get("request", -1)] for r in run.results]


class LlamatapModel:
    """interp-engine's ``InterpModel`` and ``EngineAPI`` over a GGUF file.

    model: the GGUF file; None is the model that llamatap embeds.
    tokenizer: of Hugging Face, with the ids of the GGUF file; without one, the program's own.
    args: further flags of ``llamatap run``, such as ``["-ngl", "99"]``. The default is EXACT; without ``-fa off``
    there are no attention matrices.

    Refused, with the reason: gradients through the model, prompts of embeddings, presence penalties, steering.
    Raises ProgramError where the program cannot load the model.
    """

    def __init__(self, model: str | os.PathLike[str] | None, *, tokenizer: Any = None,
                 args: Sequence[str] = EXACT) -> None:
        self._model, self._args = model, list(args)
        self._jacobians: dict[str, dict[int, torch.Tensor]] = {}
        with tempfile.TemporaryDirectory() as out:
            # A token that ends texts would not be computed: one of these is another.
            run = record(model, [{"prompt": [i], "n_predict": 0} for i in range(3)], points=["all"], out=out,
                         args=self._args)
            facts = run.metadata["model"]
            self._points = {(p["point"], p.get("layer")): p for p in run.points}
            heads = {p["tensor"] for p in run.points if p["point"] == "z" and p.get("tensor")}
            z = next((t for t in run.packets() if t.name in heads), None)
            self._plain = next(i for i, r in enumerate(run.results) if r["prompt_tokens"] > 0)
        #: The name of the model: of the GGUF file, not of Hugging Face.
        self.hf_model_id: str = facts.get("name") or facts.get("id", "")
        self.n_layers: int = facts["n_layer"]
        self.d_model: int = facts["n_embd"]
        self.n_heads: int = facts.get("n_head", 0)
        self.n_kv_heads: int = facts.get("n_head_kv", self.n_heads)
        self.head_dim: int = z.array[0].size // self.n_heads if z is not None else 0
        self.vocab_size: int = facts["n_vocab"]
        self._arch: str = facts.get("arch", "")
        self.tokenizer: Any = tokenizer if tokenizer is not None else _ProgramTokenizer(model, self._plain)
        self.tok = Tokenize(self.tokenizer)

    # What the model has.

    hooks_available = True
    graph_replay = False
    static_points: tuple[Any, ...] = ()
    static_writes: tuple[Any, ...] = ()
    #: GGUF files state no sampling in Hugging Face's form.
    recommended_sampling = RecommendedSampling()

    @property
    def grad_support(self) -> GradSupport:
        """Captured tensors can be used in a graph of one's own; no gradients through the model."""
        return GradSupport(downstream=True, through_forward=False, backend="llamatap",
                           blockers=("llama.cpp computes the model in another process, without gradients",),
                           remedy="Load the checkpoint with the eager backend of interp-engine.")

    @property
    def residual_basis(self) -> ResidualBasis:
        """One residual stream; whether attention and feed-forward network follow each other."""
        parallel = any("in parallel" in p.get("why", "") for (n, _), p in self._points.items() if n == "resid_mid")
        return replace(eager_residual_basis(parallel_attn_mlp=parallel, architecture=self._arch), backend="llamatap")

    def is_linear_attention_layer(self, layer: int) -> bool:
        """Whether the layer has no softmax attention."""
        return not self.serves("z", layer)

    def refuses(self, point: Any, layer: int | None = None) -> str | None:
        """Why the model cannot produce the point, as ``llamatap inspect MODEL --points`` says it; None if it can."""
        a = to_address(point if layer is None else (point, layer))
        if reason := layer_out_of_range(a, self.n_layers):
            return str(reason)
        if a.stream is not None:
            try:
                self.residual_basis.require_stream_coordinate(a.name, a.stream)
            except ValueError as e:
                return str(e)
        site = self._points.get((a.name, a.layer))
        if site is None:
            if all(name != a.name for name, _ in self._points):
                return f"{a.name} is not a named point: 'llamatap inspect MODEL --points' lists them"
            return f"{a.name} belongs to {'layers: give one' if a.layer is None else 'the model: leave the layer out'}"
        why = str(site.get("why", ""))
        if not site.get("tensor") or site["how"] == "recomputed" and not (_SCALE.match(why) or _HALF.match(why)):
            return why or "the graph has no such tensor"
        return None

    def serves(self, point: Any, layer: int | None = None) -> bool:
        """Whether the model can produce the point."""
        return self.refuses(point, layer) is None

    def describe(self) -> EngineDescription:
        """What the model can serve, in one record."""
        return describe_model(self, "llamatap")

    # Text and tokens.

    @property
    def tokenizer_prepends_bos(self) -> bool:
        """Whether the tokenizer begins texts with its own token."""
        return bool(self.tok.tokenizer_prepends_bos)

    @property
    def default_prepend_bos(self) -> bool:
        """Whether to_tokens begins texts with that token unless it is asked otherwise."""
        return bool(self.tok.default_prepend_bos)

    def to_tokens(self, text: str | list[str], **kwargs: Any) -> torch.Tensor:
        """The ids of a text, [1, tokens]."""
        return self.tok.to_tokens(text, **kwargs)

    def to_str_tokens(self, text: Any, **kwargs: Any) -> list[str]:
        """The text of each token."""
        return list(self.tok.to_str_tokens(text, **kwargs))

    def to_string(self, tokens: Any) -> Any:
        """The text of ids."""
        return self.tok.to_string(tokens)

    async def warmup(self) -> None:
        """Does nothing: each call loads the model."""

    async def shutdown(self) -> None:
        """Does nothing: no process outlives its call."""

    # Capture.

    async def capture(self, prompt_token_ids: Sequence[int], points: Sequence[Any], *, steering_spec: Any = None,
                      detach: bool = True, rows: Sequence[int] | None = None) -> dict[Address, torch.Tensor]:
        """The points over one prompt, [tokens, width] as float32, expert_indices as int64.

        attn_scores and attn_probs are [heads, tokens, tokens]; rows choose among the tokens that attend.
        """
        if not detach:
            self.grad_support.require_through_forward()
        self._refuse_steering(steering_spec, "capture")
        ids, addresses = [int(t) for t in prompt_token_ids], [to_address(p) for p in points]
        picked = checked_rows(rows, len(ids))
        _, found = await asyncio.to_thread(self._record, ids, addresses, {"n_predict": 0})
        if picked is None:
            return found
        return {a: x[:, picked] if a.name in _MATRICES else x[picked] for a, x in found.items()}

    async def project(self, prompt_token_ids: Sequence[int], directions: Sequence[DirectionSet], *,
                      steering_spec: Any = None) -> list[torch.Tensor]:
        """Each set of directions over one prompt, [tokens, directions]."""
        return list(await project_by_capture(self, prompt_token_ids, directions, steering_spec))

    async def capture_generation(
            self, prompt_token_ids: Sequence[int], points: Sequence[Any], *, max_tokens: int = 8,
            temperature: float = 0.0, seed: int | None = None,
            steering_spec: Any = None) -> tuple[Completion, dict[Address, torch.Tensor]]:
        """Generates, and captures prompt and generated tokens but for the last, which the model never reads."""
        self._refuse_steering(steering_spec, "capture_generation")
        addresses = [to_address(p) for p in points]
        if matrix := next((a for a in addresses if a.name in _MATRICES), None):
            raise CapabilityUnsupported(f"{matrix} grows with each generated token: capture it of the whole text")
        request = self._request(max_tokens, seed, temperature=temperature)
        result, found = await asyncio.to_thread(self._record, [int(t) for t in prompt_token_ids], addresses, request)
        return Completion(text=result["text"], token_ids=result["tokens"]), found

    async def capture_generation_stream(
            self, prompt_token_ids: Sequence[int], points: Sequence[Any],
            **kwargs: Any) -> AsyncIterator[tuple[dict[Address, torch.Tensor], list[int]]]:
        """capture_generation, all at once."""
        completion, found = await self.capture_generation(prompt_token_ids, points, **kwargs)
        yield found, completion.token_ids

    async def capture_attention(self, prompt_token_ids: Sequence[int],
                                layers: Sequence[int]) -> dict[int, dict[str, torch.Tensor]]:
        """Scores and probabilities [heads, tokens, tokens], and values [tokens, heads, width], of each layer."""
        names = {"scores": "attn_scores", "probs": "attn_probs", "value": "value"}
        found = await self.capture(prompt_token_ids, [Address(n, int(i)) for i in layers for n in names.values()])
        out = {int(i): {key: found[Address(n, int(i))] for key, n in names.items()} for i in layers}
        for of in out.values():
            of["value"] = of["value"].reshape(len(of["value"]), self.n_kv_heads, -1)
        return out

    def _record(self, ids: list[int], addresses: list[Address],
                request: dict[str, Any]) -> tuple[dict[str, Any], dict[Address, torch.Tensor]]:
        """Runs one prompt and returns its result and the points."""
        for a in addresses:
            if reason := self.refuses(a):
                raise CapabilityUnsupported(f"{a}: {reason}")
        wanted = dict.fromkeys([str(a) for a in addresses] + [f"attn_probs.{a.layer}" for a in addresses
                                                             if a.name == "attn_scores"])
        ends = CapabilityUnsupported("the prompt ends with a token that ends texts: llama.cpp generates nothing")
        if not wanted:
            [result] = complete(self._model, [{"prompt": ids, **request}], self._flags(ids, request))
            if result["prompt_tokens"] < len(ids):
                raise ends
            return result, {}
        with tempfile.TemporaryDirectory() as out:
            # llama.cpp computes nothing of a prompt that ends with a token that ends texts: one more follows.
            run = self._captured(ids, list(wanted), request, out)
            if run.results[0]["prompt_tokens"] < len(ids) and request["n_predict"] == 0:
                run = self._captured([*ids, self._plain], list(wanted), request, out)
            result = run.results[0]
            if result["prompt_tokens"] < len(ids):
                raise ends
            packets: dict[str, list[Tensor]] = {}
            for t in run.packets():
                packets.setdefault(t.name, []).append(t)
        n = len(ids) + max(len(result["tokens"]) - 1, 0)
        return result, {a: self._finish(a, packets, n) for a in addresses}

    def _captured(self, ids: list[int], points: list[str], request: dict[str, Any], out: str) -> Run:
        whole = any(p.startswith(_MATRICES) for p in points)  # in one graph, or their rows would differ in length
        batch = ["-b", str(len(ids)), "-ub", str(len(ids))] if whole else []
        return record(self._model, [{"prompt": ids, **request}], points=points, out=out,
                      args=[*self._flags(ids, request), "--all-logits", *batch])

    def _finish(self, a: Address, packets: dict[str, list[Tensor]], n: int) -> torch.Tensor:
        """The first n rows of a point, made of what was recorded of it."""
        site = self._points[a.name, a.layer]
        why, parts = str(site.get("why", "")), packets.get(site["tensor"], [])
        if a.name in _MATRICES:
            x = np.moveaxis(parts[0].array[:n, :, :n], 1, 0)
            if scale := _SCALE.match(why):
                seen = self._finish(Address("attn_probs", a.layer), packets, n).numpy() > 0
                x = np.where(seen, x * np.float32(scale[1]), np.finfo(np.float32).min)
            return torch.from_numpy(np.array(x, np.float32))
        positions = np.concatenate([t.positions for t in parts if t.positions is not None] or [np.empty(0, int)])
        if positions[:n].tolist() != list(range(n)):
            raise ProgramError(f"{a}: the recording has rows of {len(positions)} tokens, not of {n}")
        x = np.concatenate([t.array.reshape(len(t.array), -1) for t in parts])[:n]
        if half := _HALF.match(why):
            x = np.split(x, 2, axis=1)[half[1] == "second"]
        return torch.from_numpy(np.array(x, np.float32 if x.dtype.kind == "f" else np.int64))

    # Generation.

    def sampling_settings(self, *, temperature: float | None = None, top_k: int | None = None,
                          top_p: float | None = None, presence_penalty: float | None = None) -> SamplingSettings:
        """What a generation with these arguments runs with."""
        return resolve_sampling(self.recommended_sampling, temperature=temperature, top_k=top_k, top_p=top_p,
                                presence_penalty=presence_penalty)

    async def generate_text(self, prompt_token_ids: Sequence[int], *, max_tokens: int = 200, seed: int | None = None,
                            **knobs: Any) -> str:
        """The completion of a prompt, without the token that ends it."""
        return str((await self._complete(prompt_token_ids, self._request(max_tokens, seed, **knobs)))["text"])

    async def generate_stream(self, prompt_token_ids: Sequence[int], **kwargs: Any) -> AsyncIterator[str]:
        """generate_text, all at once."""
        yield await self.generate_text(prompt_token_ids, **kwargs)

    async def generate_steps(self, prompt_token_ids: Sequence[int], *, max_tokens: int = 64, stop_at_eos: bool = True,
                             n_logprobs: int = 0, seed: int | None = None, steering_spec: Any = None,
                             position_mask: Any = None, generated: bool = True,
                             **knobs: Any) -> AsyncIterator[GenStep]:
        """One step per generated token, when all are there. A character that several tokens share is U+FFFD."""
        self._refuse_steering(steering_spec, "generate_steps")
        if not stop_at_eos:
            raise CapabilityUnsupported("llama.cpp ends a text at the token that ends it: leave stop_at_eos=False out")
        request = self._request(max_tokens, seed, **knobs)
        result = await self._complete(prompt_token_ids, {**request, "n_probs": max(n_logprobs, 1)})
        for t in result.get("logprobs", []):
            top = [{"token_id": x["id"], "logprob": x.get("logprob")} for x in t["top"]]
            yield GenStep(token_id=t["id"], token_str=t["token"], logprobs=top if n_logprobs > 0 else None)

    async def generate_steps_from_embeds(self, prompt_embeds: torch.Tensor, **_: Any) -> AsyncIterator[GenStep]:
        """Refused: llamatap takes tokens."""
        checked_prompt_embeds(prompt_embeds, self.d_model)
        raise CapabilityUnsupported("llamatap takes prompts of tokens, not of embeddings: use the eager backend")
        yield

    def _request(self, max_tokens: int, seed: int | None, **knobs: Any) -> dict[str, Any]:
        """The keys of a line of the prompt file."""
        s = self.sampling_settings(**knobs)
        if s.presence_penalty:
            raise CapabilityUnsupported("llama.cpp's presence penalty counts the prompt's tokens, too, which is "
                                        "another one: leave presence_penalty out")
        return {"n_predict": max_tokens, "temperature": s.temperature, "top_k": s.top_k or 0, "top_p": s.top_p or 1.0,
                "samplers": ["temperature", "top_k", "top_p"], **({} if seed is None else {"seed": seed})}

    async def _complete(self, prompt_token_ids: Sequence[int], request: dict[str, Any]) -> dict[str, Any]:
        self._refuse_steering(None, "generation")
        return (await asyncio.to_thread(self._record, [int(t) for t in prompt_token_ids], [], request))[0]

    def _flags(self, ids: list[int], request: dict[str, Any]) -> list[str]:
        """Flags for a context that has room for the text, in steps of 256 tokens."""
        return ["-c", str((len(ids) + request["n_predict"] + 8 + 255) // 256 * 256), *self._args]

    def _refuse_steering(self, spec: Any, what: str) -> None:
        scope = steering_scope_for_call(self, spec, what=what)
        if scope is not None and not scope.is_empty():
            raise CapabilityUnsupported(
                f"{what} does not steer: make a control vector ('llamatap vector') and give its flag, "
                "args=[*EXACT, '--control-vector-scaled', 'FILE:SCALE'], or use the eager backend")

    # Lens.

    async def unembed_rows(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Rows of the output matrix, [tokens, d_model]."""
        ids = checked_vocab_ids(token_ids, self.vocab_size)
        return await asyncio.to_thread(self._unembed, ["--rows", ",".join(map(str, ids))], None, self.d_model)

    async def decode_residuals(self, residuals: torch.Tensor, *, detach: bool = True) -> torch.Tensor:
        """Logits [rows, vocabulary] of residuals [rows, d_model]: final norm, output matrix, soft cap."""
        if not detach:
            self.grad_support.require_through_forward()
        if residuals.dim() != 2 or residuals.shape[1] != self.d_model:
            raise ValueError(f"residuals are [rows, {self.d_model}], got {tuple(residuals.shape)}")
        return await asyncio.to_thread(self._unembed, [], residuals.detach().cpu().float().numpy(), self.vocab_size)

    def _unembed(self, args: list[str], states: np.ndarray | None, width: int) -> torch.Tensor:
        with tempfile.TemporaryDirectory() as work:
            given, out = str(Path(work, "states.f32")), str(Path(work, "out.f32"))
            if states is not None:
                states.astype("<f4").tofile(given)
                args = [*args, given]
            call("unembed", *(["-m", os.fspath(self._model)] if self._model is not None else []), *args, "-o", out)
            return torch.from_numpy(np.fromfile(out, "<f4").reshape(-1, width))

    async def set_lens_jacobians(self, jacobians: Mapping[int, torch.Tensor] | None, *, name: str = "default") -> int:
        """Keeps a Jacobian per layer for generate_with_lens; None drops the set. Returns its bytes."""
        return int(lens_stream.install_jacobian_set(self._jacobians, jacobians, name))

    async def generate_with_lens(
            self, prompt_token_ids: Sequence[int], lenses: Sequence[LensSpec], *, point: str = "resid_post",
            top_n: int = 10, max_tokens: int = 0, temperature: float = 0.0, seed: int | None = None,
            word_mask: torch.Tensor | None = None, skip_before: int = 0, stream_reduce: str = "none",
            stream_index: int | None = None, jacobians: Mapping[int, torch.Tensor] | None = None,
            softcap: float | None = None, steering_spec: Any = None) -> AsyncIterator[LensStep]:
        """The lenses at every position of the prompt and of max_tokens generated ones. softcap is the model's own."""
        held = lens_stream.call_jacobian_sets(self._jacobians, jacobians)
        async for step in lens_stream.client_steps(
                self, prompt_token_ids, lenses, jacobians=held, point=point, top_n=top_n, max_tokens=max_tokens,
                temperature=temperature, seed=seed, word_mask=word_mask, skip_before=skip_before,
                stream_reduce=stream_reduce, stream_index=stream_index, steering_spec=steering_spec):
            yield step
