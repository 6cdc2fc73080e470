"""Measures how fast the residual stream of all layers is captured from one model, whose weights are random, by llamatap
and by PyTorch's libraries, on the same processors.

    peers_hf.py LLAMATAP OUT DONOR.gguf PROMPTS ROUNDS

Each prompt has 512 tokens. All write what they captured to files; what the libraries captured in F32 is equal. Prints a
JSON line for each: the worst and best of the rounds, which alternate. llamatap's times include loading the model.
"""
import asyncio
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import gguf
import numpy as np
import torch

import points_hf

LENGTH, LAYERS, WIDTH = 512, 12, 768
program, out, donor, count, rounds = sys.argv[1:]
out, count, rounds = pathlib.Path(out), int(count), int(rounds)

points_hf.DIM, points_hf.HEADS, points_hf.KV = 64, 12, 12
points_hf.BASE.update(hidden_size=WIDTH, intermediate_size=2048, num_hidden_layers=LAYERS, num_attention_heads=12,
                      num_key_value_heads=12, head_dim=64)
model, arch = points_hf.make("llama")
path = {"F32": out / "f32.gguf"}
points_hf.write(path["F32"], model, arch, "llama", gguf.GGUFReader(donor))
for kind in ("BF16", "Q8_0", "Q4_K"):
    path[kind] = out / f"{kind}.gguf"
    subprocess.run([program, "llama-quantize", path["F32"], path[kind], kind], check=True, capture_output=True)
prompts = np.random.default_rng(1).integers(3, points_hf.VOCAB, (count, LENGTH))
lines = out / "prompts.jsonl"
lines.write_text("".join(json.dumps({"prompt": p.tolist()}) + "\n" for p in prompts))
os.sched_getaffinity(0)
torch.set_num_threads(len(os.sched_getaffinity(0)))


def keep(number, rows):
    """Writes layers × tokens × width."""
    rows = torch.stack([r.reshape(LENGTH, WIDTH) for r in rows]).float().numpy()
    np.save(out / "kept" / f"{number}.npy", rows)
    return rows.nbytes


def llamatap(kind):
    def run():
        folder = out / "dataset"
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([program, "run", "-m", path[kind], "--prompts", lines, "-n", "0", "-c", "8192", "--all-rows",
                        "--results", os.devnull, "--tap-point", "resid_post", "--tap-dtype", "f32", "--tap-dataset", folder,
                        "--tap-out", out / "runs"], check=True, capture_output=True)
        shutil.rmtree(out / "runs", ignore_errors=True)
        about = json.loads((folder / "llamatap.json").read_text())  # shards are compressed: the rows are counted
        return about["rows"] * sum(t["shape"][-1] for t in about["tensors"]) * 4
    return run


def hooks(dtype):
    """transformers, with a forward hook on each layer."""
    net = model.to(dtype) if dtype == torch.float32 else points_hf.make("llama")[0].to(dtype)
    rows = []
    for layer in net.model.layers:
        layer.register_forward_hook(lambda m, a, o: rows.append(o[0] if isinstance(o, tuple) else o))

    def run():
        total = 0
        for i, p in enumerate(prompts):
            rows.clear()
            with torch.no_grad():
                net(torch.from_numpy(p)[None])
            total += keep(i, rows)
        return total
    return run


def no_tokenizer():
    """One that is there: prompts are token ids."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    words = {f"w{i}": i for i in range(points_hf.VOCAB)}
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")), unk_token="w0",
                                   pad_token="w0", bos_token="w1", eos_token="w2")
    made.save_pretrained(out / "config")
    return PreTrainedTokenizerFast.from_pretrained(out / "config")  # TransformerLens wants one from files


def interp_engine():
    from interp_engine.address import Address
    from interp_engine.model import EagerModel
    net = EagerModel("model", hf_model=points_hf.make("llama")[0], tokenizer=no_tokenizer())
    addresses = [Address("resid_post", i) for i in range(LAYERS)]

    def run():
        total = 0
        for i, p in enumerate(prompts):
            got = asyncio.run(net.capture(p.tolist(), addresses))
            total += keep(i, [got[a] for a in addresses])
        return total
    return run


def transformer_lens():
    from transformer_lens.model_bridge import TransformerBridge
    hf = points_hf.make("llama")[0]
    hf.config.save_pretrained(out / "config")
    net = TransformerBridge.boot_transformers(str(out / "config"), hf_model=hf, tokenizer=no_tokenizer())
    names = [f"blocks.{i}.hook_resid_post" for i in range(LAYERS)]

    def run():
        total = 0
        for i, p in enumerate(prompts):
            with torch.no_grad():
                _, cache = net.run_with_cache(torch.from_numpy(p)[None], names_filter=names, return_type=None)
            total += keep(i, [cache[n] for n in names])
        return total
    return run


def nnsight():
    from nnsight import NNsight
    net = NNsight(points_hf.make("llama")[0])

    def run():
        total = 0
        for i, p in enumerate(prompts):
            with torch.no_grad(), net.trace(torch.from_numpy(p)[None]):
                rows = list().save()
                for layer in net.model.layers:
                    rows.append(layer.output)
            total += keep(i, [r[0] if isinstance(r, tuple) else r for r in rows])
        return total
    return run


(out / "kept").mkdir(exist_ok=True)
measured, reference = {}, None
for name, made in (
    *((f"llamatap, {kind}", lambda kind=kind: llamatap(kind)) for kind in path),
    ("transformers hooks, F32", lambda: hooks(torch.float32)),
    ("transformers hooks, BF16", lambda: hooks(torch.bfloat16)),
    ("interp-engine eager, F32", interp_engine), ("TransformerLens, F32", transformer_lens), ("nnsight, F32", nnsight),
):
    try:
        measured[name] = (made(), [])
    except Exception as e:
        print(json.dumps({"name": name, "error": f"{type(e).__name__}: {e}"}), flush=True)
for _ in range(rounds):
    for name, (run, rates) in measured.items():
        begun = time.perf_counter()
        size = run()
        rates.append(count * LENGTH / (time.perf_counter() - begun))
        wanted = count * LENGTH * LAYERS * WIDTH * 4
        assert size == wanted, f"{name} wrote {size} bytes of {wanted}"
        if name.endswith(", F32") and not name.startswith("llamatap"):
            rows = np.load(out / "kept" / "0.npy")
            reference = rows if reference is None else reference
            assert np.abs(rows - reference).max() <= 1e-4 * np.abs(reference).max(), f"{name} captured something else"
for name, (_, rates) in measured.items():
    bytes_of = LAYERS * WIDTH * 4
    print(json.dumps({"name": name, "tokens_per_second": [round(min(rates)), round(max(rates))],
                      "mb_per_second": [round(min(rates) * bytes_of / 1e6, 1), round(max(rates) * bytes_of / 1e6, 1)]}),
          flush=True)
