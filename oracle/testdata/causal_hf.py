"""Ablates models of Hugging Face's transformers with plain PyTorch hooks: the same random weights as points_hf.py.

    causal_hf.py OUT DONOR.gguf TOKENS NAME…

For each NAME, OUT/NAME.gguf is the model, and OUT/NAME.json a list of [point, layer, token, head, logits]: logits of
the last token where the row of the point at the token, or the part of one head, is 0. Head -1 is the whole row. The
first entry has no point: nothing is ablated.
"""
import json
import sys

import gguf
import torch
from points_hf import DIM, HEADS, KV, make, write


def sites(model):
    """(point, layer, heads, module, which side of it, columns of its tensor)"""
    for i, layer in enumerate(model.model.layers):
        attn, mlp, sub = layer.self_attn, layer.mlp, dict(layer.named_children())
        yield "resid_post", i, 0, layer, "output", None
        yield "z", i, HEADS, attn.o_proj, "input", None
        yield "attn_out", i, 0, attn.o_proj, "output", None
        if hasattr(attn, "v_proj"):
            yield "value", i, KV, attn.v_proj, "output", None
        else:
            yield "value", i, KV, attn.qkv_proj, "output", slice(-KV * DIM, None)
        yield "mlp_out", i, 0, mlp, "output", None
        if "post_feedforward_layernorm" in sub:
            yield "mlp_out_post", i, 0, sub["post_feedforward_layernorm"], "output", None
            yield "attn_out_post", i, 0, sub["post_attention_layernorm"], "output", None
        if not hasattr(mlp, "experts"):
            yield "mlp_act", i, 0, mlp.down_proj, "input", None
            if "post_feedforward_layernorm" not in sub:  # olmo2 reads the residual stream itself
                yield "mlp_in", i, 0, mlp, "input", None


def ablate(model, tokens, module, side, columns, token):
    def zero(x):
        x = x.clone()
        x[0, token, columns] = 0
        return x

    def change(m, *io):
        x = io[-1]
        return (zero(x[0]), *x[1:]) if isinstance(x, tuple) else zero(x)

    hook = module.register_forward_pre_hook(change) if side == "input" else module.register_forward_hook(change)
    logits = model(torch.tensor([tokens])).logits[0, -1].tolist()
    hook.remove()
    return logits


def main(out, donor, tokens, *names):
    donor = gguf.GGUFReader(donor)
    tokens = [int(t) for t in tokens.split(",")]
    torch.set_grad_enabled(False)
    for name in names:
        model, arch = make(name)
        write(f"{out}/{name}.gguf", model, arch, name, donor)
        results = [["", 0, 0, 0, model(torch.tensor([tokens])).logits[0, -1].tolist()]]
        for point, layer, heads, module, side, part in sites(model):
            for token in (1, len(tokens) // 2, len(tokens) - 1):
                for head in range(-1, heads):
                    columns = part or slice(None)
                    if head >= 0:
                        first = (columns.start or 0) + head * DIM
                        columns = slice(first, first + DIM or None)
                    results.append([point, layer, token, head, ablate(model, tokens, module, side, columns, token)])
        with open(f"{out}/{name}.json", "w") as f:
            json.dump(results, f)


main(*sys.argv[1:])
