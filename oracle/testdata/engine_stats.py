"""Intervals of the aggregate, by SciPy, for the scripts that compute it with other engines."""
import json
import math

from scipy.stats import binomtest, t

CELL = ["experiment", "cell", "model_id", "prompt", "n_ctx", "kv_type", "max_tokens", "concurrency"]
BELOW_ONE = ("write_once_ratio", "censored_share", "locality_score")  # their largest value is 1


def student(row):
    """Student's interval of the mean of a figure that is not negative, into a row with n, mean and sd."""
    if row["n"] < 2:
        return row | {"sd": None, "ci95_low": None, "ci95_high": None, "method": ""}
    half = float(t.ppf(0.975, row["n"] - 1)) * row["sd"] / math.sqrt(row["n"])
    most = 1 if row["metric"] in BELOW_ONE else math.inf
    return row | {"ci95_low": max(row["mean"] - half, 0.0), "ci95_high": min(row["mean"] + half, most),
                  "method": "student_t"}


def wilson(row):
    """Wilson's interval of the share k of n runs, into a row with k and n."""
    k, n = int(row.pop("k")), int(row["n"])
    ci = binomtest(k, n).proportion_ci(0.95, method="wilson")
    return row | {"mean": k / n, "sd": None, "ci95_low": ci.low, "ci95_high": ci.high, "min": float(k == n),
                  "max": float(k > 0), "method": "wilson"}


def answer(numbers, labels, in_place, workers):
    """Writes what the test compares: each argument but the last is a list of rows."""
    with open("answer.json", "w") as file:
        json.dump({"values": [student(r) for r in numbers] + [wilson(r) for r in labels],
                   "in_place": [student(r) for r in in_place], "workers": workers}, file)
