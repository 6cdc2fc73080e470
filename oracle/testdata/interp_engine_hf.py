"""Compares llamatap.interp with interp-engine's own eager backend, on models of transformers with random weights.

    interp_engine_hf.py OUT DONOR.gguf TOKENS NAME…

Models are those of points_hf.py. Prints a line for each; a difference is an AssertionError.
"""
import asyncio
import sys

import gguf
import torch
from interp_engine.api import DirectionSet, EngineAPI, LensSpec
from interp_engine.address import Address
from interp_engine.autograd_support import GradientsUnsupported
from interp_engine.dispatch import CapabilityUnsupported
from interp_engine.lens import layer_logits
from interp_engine.model import EagerModel
from interp_engine.points import POINTS, Scope
from interp_engine.protocol import InterpModel
from interp_engine.steer import steer
from interp_engine.steer_specs import AddSpec, LayerSteeringSpec, SteeringSpec

import points_hf
from llamatap.interp import LlamatapModel

BOUND = {"gemma2": 1e-3}  # of GELU, two inputs that differ in their last bit may be rounded apart
GENERATED = 12
END = 2048  # a token of the donor that ends texts


def run(made):
    """The result of a coroutine, or what an asynchronous generator yields."""
    async def all_of():
        return [x async for x in made]
    return asyncio.run(all_of() if hasattr(made, "__aiter__") else made)


def distance(got, want):
    """The largest difference, relative to the largest value; what is masked must be so in both."""
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, want.shape, got.dtype, want.dtype)
    seen = want > -1e30
    assert torch.equal(got > -1e30, seen), "other cells are masked"
    got, want = got[seen].double(), want[seen].double()
    return ((got - want).abs().max() / want.abs().max()).item()


def refused(error, call, *args, **kwargs):
    try:
        run(call(*args, **kwargs))
    except error as e:
        return str(e)
    raise AssertionError(f"{call.__name__} with {kwargs or args} was not refused with {error.__name__}")


def compare(name, ours, theirs, tokens, bound):
    assert isinstance(ours, InterpModel) and isinstance(ours, EngineAPI)
    for fact in ("n_layers", "d_model", "n_heads", "n_kv_heads", "head_dim"):
        assert getattr(ours, fact) == getattr(theirs, fact), fact
    assert ours.residual_basis.sequential == theirs.residual_basis.sequential
    worst = {}

    def near(what, got, want):
        worst[what] = max(worst.get(what, 0), distance(got, want))
        assert worst[what] <= bound, f"{name}: {what} differs by {worst[what]:.2g}"

    addresses = [a for p in POINTS for a in ([Address(p.name)] if p.scope is Scope.GLOBAL else
                                             [Address(p.name, i) for i in range(ours.n_layers)])]
    for a in addresses:
        assert ours.serves(a) == theirs.serves(a), f"{a}: {ours.refuses(a)}; interp-engine: {theirs.refuses(a)}"
    both = [a for a in addresses if ours.serves(a)]
    got, want = run(ours.capture(tokens, both)), run(theirs.capture(tokens, both))
    for a in both:
        near(a.name, got[a], want[a].flatten(1) if "_norm_" in a.name else want[a])  # eager keeps heads apart there
    points = len(worst)
    a = Address("resid_post", ours.n_layers - 1)
    near("rows", run(ours.capture(tokens, [a], rows=[2, 0]))[a], want[a][[2, 0]])
    for layer, want_of in run(theirs.capture_attention(tokens, [0, 2])).items():
        for key, x in run(ours.capture_attention(tokens, [layer]))[layer].items():
            near("capture_attention " + key, x, want_of[key])
    directions = [DirectionSet(a, torch.randn(5, ours.d_model), torch.randn(5), "relu")]
    near("project", run(ours.project(tokens, directions))[0], run(theirs.project(tokens, directions))[0])

    greedy = dict(max_tokens=GENERATED, temperature=0.0)
    (done, rows), (wanted, wanted_rows) = (run(m.capture_generation(tokens, [a, "lm_head"], **greedy))
                                           for m in (ours, theirs))
    assert done.token_ids == wanted.token_ids and len(done.token_ids) == GENERATED, (done, wanted)
    for k in wanted_rows:
        near("capture_generation", rows[k], wanted_rows[k])
    steps, wanted_steps = (run(m.generate_steps(tokens, n_logprobs=3, **greedy)) for m in (ours, theirs))
    assert [s.token_id for s in steps] == [s.token_id for s in wanted_steps]
    near("logprobs", *(torch.tensor([[p["logprob"] for p in s.logprobs] for s in x]) for x in (steps, wanted_steps)))
    assert run(ours.generate_text(tokens, **greedy)) == "".join(run(ours.generate_stream(tokens, **greedy)))
    sampled = [run(ours.generate_steps(tokens, max_tokens=6, temperature=2.0, top_k=50, seed=s)) for s in (1, 1, 2)]
    assert sampled[0] == sampled[1] != sampled[2], "the seed decides"

    near("unembed_rows", run(ours.unembed_rows([7, 3])), run(theirs.unembed_rows([7, 3])))
    if "compared" in (refusal := known_head(ours, want[a])):
        assert name == "olmo2", refusal
    else:
        states = torch.cat([want[Address("resid_post", i)] for i in range(ours.n_layers)]) * 1.5
        near("decode_residuals", *(run(m.decode_residuals(states)) for m in (ours, theirs)))
        lenses = [LensSpec([0, 1, 2]), LensSpec([1], jacobian=True)]
        jacobians = {1: torch.randn(ours.d_model, ours.d_model) / ours.d_model**0.5}
        for x, y in zip(*(run(m.generate_with_lens(tokens, lenses, top_n=1, max_tokens=3, jacobians=jacobians))
                          for m in (ours, theirs)), strict=True):
            assert (x.position, x.token_id, x.is_generated) == (y.position, y.token_id, y.is_generated)
            for i in range(len(lenses)):
                near("lens probabilities", x.top_probs[i], y.top_probs[i])
        logits = [layer_logits(m, torch.tensor([tokens]), {"logit_lens": [1]})["logit_lens"][1] for m in (ours, theirs)]
        near("layer_logits", *logits)

    spec = SteeringSpec(layers={1: LayerSteeringSpec(operations=[AddSpec(vector=torch.ones(ours.d_model), scale=1.0)])})
    assert "control vector" in refused(CapabilityUnsupported, ours.capture, tokens, [a], steering_spec=spec)
    with steer(ours, spec):
        refused(CapabilityUnsupported, ours.generate_text, tokens)
    refused(GradientsUnsupported, ours.capture, tokens, [a], detach=False)
    refused(CapabilityUnsupported, ours.capture, tokens, ["attn_gate.0"])
    refused(CapabilityUnsupported, ours.generate_steps_from_embeds, want[a])
    refused(CapabilityUnsupported, ours.generate_text, tokens, presence_penalty=1.0)
    ends = [*tokens, END]  # llama.cpp computes nothing of such a prompt: one more token follows
    near("prompt that ends", *(run(m.capture(ends, [a]))[a] for m in (ours, theirs)))
    refused(CapabilityUnsupported, ours.generate_text, ends)
    refused(ValueError, ours.unembed_rows, [ours.vocab_size])
    refused(ValueError, ours.capture, tokens, [a], rows=[len(tokens)])
    print(f"{name}: {points} points and {len(worst) - points} results equal within {max(worst.values()):.2g}")


def known_head(model, states):
    try:
        run(model.decode_residuals(states))
        return ""
    except RuntimeError as e:
        return str(e)


def main(out, donor, tokens, *names):
    donor, tokens = gguf.GGUFReader(donor), [int(t) for t in tokens.split(",")]
    torch.manual_seed(1)
    for name in names:
        model, arch = points_hf.make(name)
        path = f"{out}/{name}.gguf"
        points_hf.write(path, model, arch, name, donor)
        points_hf.like_ggml(model)
        ours = LlamatapModel(path, args=["-fa", "off", "-ctk", "f32", "-ctv", "f32", "-t", "1"])
        theirs = EagerModel(name, hf_model=model, tokenizer=ours.tokenizer)
        compare(name, ours, theirs, tokens, BOUND.get(name, 1e-4))


main(*sys.argv[1:])
