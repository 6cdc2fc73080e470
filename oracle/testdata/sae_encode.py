"""Compares llamatap's activations of an autoencoder with those of SAELens: FOLDER ARRAYS EVALUATION."""
import json
import sys

import numpy as np
import torch
from sae_lens import SAE

folder, arrays, evaluation = sys.argv[1:]
sae = SAE.load_from_disk(folder)
index = json.load(open(arrays + "/index.json"))["arrays"][0]
x = np.load(f"{arrays}/{index['file']}").astype(np.float32)
rows = np.load(f"{arrays}/{index['rows']}")["token_index"]
with torch.no_grad():
    features = sae.encode(torch.from_numpy(x))
    missed = ((sae.decode(features).numpy() - x) ** 2).sum()
features = features.numpy()

got = np.zeros_like(features)
report = json.load(open(evaluation))
place = {int(token): row for row, token in enumerate(rows)}
for feature in report["features"]:
    for context in feature.get("contexts", []):
        got[place[context["token_index"]], feature["feature"]] = context["activation"]

assert len(place) == report["rows"] == len(x) <= 1000, (len(place), report["rows"])
off = np.abs(got - features).max() / features.max()
assert off < 1e-5, f"activations differ by {off}"
assert (features > 0).sum() > len(x), "next to nothing is active"
explained = 1 - missed / ((x - x.mean(0)) ** 2).sum()
assert abs(explained - report["explained_variance"]) < 1e-4, (explained, report["explained_variance"])
del sae.cfg.metadata.__dict__["llamatap"]
sae.save_model(folder + "-saved")
print(f"{type(sae).__name__}: {len(x)} rows, L0 {(features > 0).sum(1).mean():.2f}, equal within {off:.1e}, "
      f"explained {explained:.4f}")
