"""Reads what llamatap records of llama.cpp, and starts recordings.

    import llamatap

    run = llamatap.open("llamatap-runs")        # the newest run of a folder, or RUN itself
    x = run.tensor("resid_post", layer=3)       # a named point, or a tensor: "l_out"
    x.values.shape, x.tokens                    # [rows, n_embd], token_index of each row
    run.token(x.tokens[-1]).text

    run = llamatap.record("model.gguf", ["Hello", "Bonjour"], points=["resid_post"], n_predict=16)

NumPy is all that reading needs. pyarrow adds tables (``run.arrow("ledger")``) and faster codecs.
"""

from .program import ProgramError, find_program, record
from .run import Activations, Run, open
from .stream import Tensor, read
from .tokens import Token

__all__ = ["Activations", "ProgramError", "Run", "Tensor", "Token", "find_program", "open", "read", "record"]
