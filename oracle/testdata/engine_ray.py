"""What mrm aggregate computes, by Ray Data with two workers."""
import glob
import json
import os

import numpy
import pandas
import ray
from engine_stats import CELL, answer
from ray.data.aggregate import Count, Max, Mean, Min, Std
from ray.data.datasource import Partitioning

NULL = "__HIVE_DEFAULT_PARTITION__"  # as Ray leaves it
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=os.environ["RAY_FOLDER"])
ray.data.DataContext.get_current().default_hash_shuffle_parallelism = 4  # of a few rows


def statistics(dataset):
    """n, mean, sd, min and max of the values of each cell, type of region and metric, each a row."""
    return dataset.groupby(CELL + ["region_type", "metric"]).aggregate(
        Count(alias_name="n"), Mean("value", alias_name="mean"), Std("value", ddof=1, alias_name="sd"),
        Min("value", alias_name="min"), Max("value", alias_name="max"))


def count(runs):
    """The marginal runs of a cell, and how many of the runs that report a type of region have a label."""
    rows = [{"cell": runs["cell"].iloc[0], "marginal": runs[runs["validity"] == "marginal"]["run_id"].nunique()}]
    for kind, of_kind in runs.groupby("region_type"):
        for (metric, label), having in of_kind.dropna(subset=["label"]).groupby(["metric", "label"]):
            rows.append({name: having[name].iloc[0] for name in CELL} | {
                "region_type": kind, "metric": f"{metric}={label}", "k": len(having),
                "n": of_kind["run_id"].nunique(), "marginal": rows[0]["marginal"]})
    return pandas.DataFrame({"row": [json.dumps(row, default=int) for row in rows], "pid": os.getpid()})


def percentiles(lives):
    """The percentiles of what a run's cache was needed for, as rows of figures."""
    needed = (lives["last_read_ns"] - lives["first_write_ns"]).astype("int64").to_numpy() / 1e9
    rows = pandas.DataFrame([cells[lives["dir"].iloc[0]]] * 4)
    rows["region_type"] = "kv_cache"
    rows["metric"] = ["retention_p50_s", "retention_p90_s", "retention_p99_s", "retention_max_s"]
    rows["value"] = numpy.quantile(needed, [0.5, 0.9, 0.99, 1], method="inverted_cdf")
    return rows


def folder(batch):
    batch["dir"] = batch["path"].map(os.path.dirname)
    return batch


values = ray.data.read_parquet("aggregate/run_values", override_num_blocks=4, partitioning=Partitioning(
    "hive", field_types={"n_ctx": int, "concurrency": int})).materialize()
numbers = statistics(values.filter(lambda row: row["value"] is not None)).take_all()
counted = values.groupby("cell").map_groups(count, batch_format="pandas").take_all()
labels = [json.loads(row["row"]) for row in counted]
marginal = {row["cell"]: row["marginal"] for row in labels}

runs = ray.data.read_json(glob.glob("results/*/*/metadata.json"), include_paths=True).take_all()
cells = {os.path.dirname(run["path"]): {"experiment": run["experiment"]["name"], "cell": run["cell"]["key"]} |
         {name: run["cell"].get(name) or NULL if name == "kv_type" else run["cell"][name] for name in CELL[2:]}
         for run in runs}
lives = ray.data.read_parquet(glob.glob("results/*/*/kv_block_lifecycle.parquet"), include_paths=True)
in_place = statistics(lives.map_batches(folder, batch_format="pandas").groupby("dir").map_groups(
    percentiles, batch_format="pandas")).take_all()

for row in numbers + in_place:
    row["marginal"] = marginal[row["cell"]]
labels = [row for row in labels if "k" in row]
for row in numbers + labels + in_place:
    row["kv_type"] = None if row["kv_type"] == NULL else row["kv_type"]
answer(numbers, labels, in_place, len({row["pid"] for row in counted}))
