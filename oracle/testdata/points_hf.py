"""Makes models of Hugging Face's transformers with random weights, writes them as GGUF in F32, and computes every
named point of them with plain PyTorch hooks.

    points_hf.py OUT DONOR.gguf TOKENS NAME…

For each NAME, OUT/NAME.gguf is the model, with the tokenizer of the donor; OUT/NAME.json lists the points of the
tokens (ids, separated by commas) as [point, layer, shape, offset], and OUT/NAME.f32 holds their values, one row for
each token. Attention scores and probabilities are [heads, tokens, tokens].
"""
import json
import sys

import gguf
import numpy as np
import torch
import transformers as tf

HIDDEN, FF, HEADS, KV, DIM, VOCAB, EXPERTS = 64, 96, 4, 2, 32, 2080, 4
BASE = dict(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FF, num_hidden_layers=3, num_attention_heads=HEADS,
            num_key_value_heads=KV, head_dim=DIM, max_position_embeddings=512, attn_implementation="eager",
            pad_token_id=0, bos_token_id=1, eos_token_id=2)
MOE = dict(moe_intermediate_size=32, num_experts=EXPERTS, num_experts_per_tok=2)
WIDE = dict(head_dim=None, hidden_size=HEADS * DIM)  # where heads are as wide as the model

# NAME: class of the model (its configuration is named alike), arguments, architecture in GGUF.
MODELS = {
    "llama": ("Llama", {}, "llama"),
    "qwen2": ("Qwen2", WIDE, "qwen2"),
    "qwen3": ("Qwen3", {}, "qwen3"),
    "gemma2": ("Gemma2", dict(query_pre_attn_scalar=DIM), "gemma2"),
    "gemma3": ("Gemma3Text:Gemma3", dict(query_pre_attn_scalar=DIM, num_hidden_layers=7), "gemma3"),
    "mixtral": ("Mixtral", dict(num_local_experts=EXPERTS, num_experts_per_tok=2), "llama"),
    "qwen2moe": ("Qwen2Moe", dict(WIDE, **MOE, shared_expert_intermediate_size=FF), "qwen2moe"),
    "qwen3moe": ("Qwen3Moe", dict(MOE, norm_topk_prob=True), "qwen3moe"),
    "olmo2": ("Olmo2", dict(WIDE, num_key_value_heads=HEADS), "olmo2"),
    "phi3": ("Phi3", WIDE, "phi3"),
    "phi2": ("Phi", dict(WIDE, num_key_value_heads=HEADS), "phi2"),
    "starcoder2": ("Starcoder2", dict(WIDE, use_bias=True), "starcoder2"),
}

# What the layers' weights are called in GGUF.
NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.dense": "attn_output",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
    "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
}
POST_NORM = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
             "post_feedforward_layernorm": "post_ffw_norm"}
BEHIND = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
ENDS = {"embed_tokens": "token_embd", "norm": "output_norm", "final_layernorm": "output_norm"}


def make(name):
    kind, more, arch = MODELS[name]
    config_kind, _, model_kind = kind.partition(":")
    config = getattr(tf, config_kind + "Config")(**{k: v for k, v in {**BASE, **more}.items() if v is not None})
    model = getattr(tf, (model_kind or config_kind) + "ForCausalLM")(config).eval()
    chance = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for key, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=chance)
            if "norm" in key and key.endswith("weight"):
                p.copy_((0 if name.startswith("gemma") else 1) + 0.2 * noise)
            elif p.dim() == 1:
                p.copy_(0.2 * noise)
            elif "embed_tokens" in key:
                p.copy_(noise * (0.5 if name.startswith("gemma") else 1))
            else:
                p.copy_(noise / p.shape[-1] ** 0.5)
    return model, arch


def rotated(w, heads):
    """Rows of a query or key matrix as llama.cpp rotates them for llama: neighbours are pairs."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def write(path, model, arch, name, donor):
    c, w = model.config, gguf.GGUFWriter(path, arch)
    w.add_name("points")
    w.add_context_length(512)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_key_length(DIM)
    w.add_value_length(DIM)
    rope = c.rope_parameters.get("full_attention", c.rope_parameters)
    w.add_rope_freq_base(rope["rope_theta"])
    w.add_rope_dimension_count(int(DIM * rope.get("partial_rotary_factor", 1)))
    w.add_layer_norm_rms_eps(getattr(c, "rms_norm_eps", 0) or 1e-5)
    w.add_layer_norm_eps(getattr(c, "layer_norm_eps", getattr(c, "norm_epsilon", 1e-5)))
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    if name.startswith("gemma"):
        w.add_sliding_window(c.sliding_window)
    if name == "gemma2":
        w.add_attn_logit_softcapping(c.attn_logit_softcapping)
        w.add_final_logit_softcapping(c.final_logit_softcapping)
    if name == "phi3":
        w.add_rope_scaling_orig_ctx_len(512)
        w.add_sliding_window(0)
    if "moe" in name or name == "mixtral":
        w.add_expert_count(EXPERTS)
        w.add_expert_used_count(2)
        if "moe" in name:
            w.add_expert_feed_forward_length(c.moe_intermediate_size)
        if name == "qwen2moe":
            w.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)
    for key, field in donor.fields.items():
        if key.startswith("tokenizer."):
            kind = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            w.add_key_value(key, field.contents(), field.types[0], sub_type=kind)
    names = {**NAMES, **(POST_NORM if name.startswith("gemma") else BEHIND if name == "olmo2" else {})}
    shift = 1 if name.startswith("gemma") else 0
    for key, p in model.named_parameters():
        v, (module, _, part) = p.detach().numpy(), key.rpartition(".")
        if module.startswith("model.layers."):
            layer, _, module = module.removeprefix("model.layers.").partition(".")
            if part in ("gate_up_proj", "down_proj"):  # of all experts
                halves = {"ffn_gate_exps": v[:, : v.shape[1] // 2], "ffn_up_exps": v[:, v.shape[1] // 2 :]}
                for to, x in (halves if part == "gate_up_proj" else {"ffn_down_exps": v}).items():
                    w.add_tensor(f"blk.{layer}.{to}.weight", np.ascontiguousarray(x))
                continue
            if arch == "llama" and module in ("self_attn.q_proj", "self_attn.k_proj"):
                v = rotated(v, HEADS if "q_proj" in module else KV)
            if module == "mlp.shared_expert_gate":
                v = v[0]
            to = f"blk.{layer}.{names[module]}"
        else:
            to = "output" if module == "lm_head" else ENDS[module.removeprefix("model.")]
        w.add_tensor(f"{to}.{part}", np.ascontiguousarray(v + shift if "norm" in to else v))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def like_ggml(model):
    """GELU as ggml's CPU backend has it, which looks it up in a table of half-precision numbers: exact ones would
    differ by 3e-4."""
    for m in model.modules():
        if "gelu" in type(m).__name__.lower():
            m.forward = lambda x: torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()


def compute(model, tokens):
    """Every point of the tokens: {(point, layer): values}, one row for each token."""
    found, scores = {}, []
    tokens_n = len(tokens)

    def keep(point, layer, x):
        x = x.detach().float()
        if "_norm_" in point and x.dim() == 4 and x.shape[2] == tokens_n:
            x = x.transpose(1, 2)  # heads came first
        found[point, layer] = x[0] if point in ("attn_scores", "attn_probs") else x.reshape(tokens_n, -1)

    def of(module, point, layer, side="output", pick=None, post=lambda x: x):
        if module is None:
            return
        if side == "input":
            module.register_forward_pre_hook(
                lambda m, a, k: keep(point, layer, post(a[0] if a else k["hidden_states"])), with_kwargs=True)
        else:
            module.register_forward_hook(
                lambda m, a, o: keep(point, layer, post(o[pick or 0] if isinstance(o, tuple) else o)))

    like_ggml(model)
    body = model.model
    of(body.embed_tokens, "embeddings", -1)
    of(getattr(body, "norm", None) or body.final_layernorm, "final_norm", -1)
    of(model.lm_head, "lm_head", -1)
    for i, layer in enumerate(body.layers):
        attn, mlp, sub = layer.self_attn, layer.mlp, dict(layer.named_children())
        get = lambda m, *names: next((getattr(m, n) for n in names if hasattr(m, n)), None)
        of(layer, "resid_pre", i, "input")
        of(layer, "resid_post", i)
        of(get(attn, "q_proj", "qkv_proj"), "attn_in", i, "input")
        for x in "qk":
            of(get(attn, x + "_norm"), x + "_norm_in", i, "input")
            of(get(attn, x + "_norm"), x + "_norm_out", i)
        if hasattr(attn, "v_proj"):
            of(attn.v_proj, "value", i)
        else:
            of(attn.qkv_proj, "value", i, post=lambda x: x[..., -KV * DIM:])
        out = get(attn, "o_proj", "dense")
        of(out, "z", i, "input")
        of(out, "attn_out", i)
        of(attn, "attn_probs", i, pick=1)
        sandwich = "post_feedforward_layernorm" in sub
        of(sub["post_attention_layernorm"] if sandwich else out, "attn_out_post", i)
        before = sub.get("pre_feedforward_layernorm") or (mlp if sandwich else sub.get("post_attention_layernorm"))
        of(before, "resid_mid", i, "input")
        of(mlp, "mlp_in", i, "input")
        of(mlp, "mlp_out", i)
        of(sub["post_feedforward_layernorm"] if sandwich else mlp, "mlp_out_post", i)
        if hasattr(mlp, "experts"):
            for k, point in enumerate(("router_logits", "expert_weights", "expert_indices")):
                of(mlp.gate, point, i, pick=k)
            continue
        of(get(mlp, "down_proj", "fc2", "c_proj"), "mlp_act", i, "input")
        if hasattr(mlp, "gate_up_proj"):
            of(mlp.gate_up_proj, "mlp_pre", i, post=lambda x: x.chunk(2, -1)[0])
            of(mlp.gate_up_proj, "mlp_pre_linear", i, post=lambda x: x.chunk(2, -1)[1])
        else:
            of(get(mlp, "gate_proj", "fc1", "c_fc"), "mlp_pre", i)
            of(get(mlp, "up_proj"), "mlp_pre_linear", i)
    softmax = torch.nn.functional.softmax

    def heard(x, *a, **k):
        if x.dim() == 4:
            scores.append(x)
        return softmax(x, *a, **k)

    torch.nn.functional.softmax = heard
    with torch.no_grad():
        model(torch.tensor([tokens]))
    torch.nn.functional.softmax = softmax
    for i, x in enumerate(scores):
        keep("attn_scores", i, x)
    return found


def main(out, donor, tokens, *names):
    donor = gguf.GGUFReader(donor)
    tokens = [int(t) for t in tokens.split(",")]
    for name in names:
        model, arch = make(name)
        write(f"{out}/{name}.gguf", model, arch, name, donor)
        index, at = [], 0
        with open(f"{out}/{name}.f32", "wb") as f:
            for (point, layer), x in compute(model, tokens).items():
                index.append([point, layer, list(x.shape), at])
                at += f.write(x.numpy().astype("<f4").tobytes())
        with open(f"{out}/{name}.json", "w") as f:
            json.dump(index, f)


if __name__ == "__main__":
    main(*sys.argv[1:])
