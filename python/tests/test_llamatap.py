"""python -m unittest discover -s python/tests: needs the llamatap program ($LLAMATAP), NumPy and pyarrow."""

import collections
import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from pathlib import Path
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import llamatap

PROMPTS = ["Hello world", "func main() {"]


def program(*args):
    """Runs llamatap and returns what it printed."""
    return subprocess.run([llamatap.find_program(), *args], check=True, capture_output=True).stdout


class Recorded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.run_ = llamatap.record(
            None, PROMPTS, points=["resid_post", "attn_scores", "lm_head"], layers="1-3", n_predict=6, out=cls.folder.name,
            args=["-fa", "off", "--tap-resource-level", "MINIMAL", "--tap-ledger", "--tap-kv", "--tap-regions"])

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_equals_cat(self):
        x = self.run_.tensor("resid_post", layer=2)
        want = np.load(io.BytesIO(program("cat", str(self.run_.path), "--tensor", "l_out-2", "--format", "npy")))
        np.testing.assert_array_equal(x.values, want)
        self.assertEqual(x.values.dtype, np.float32)
        np.testing.assert_array_equal(self.run_.tensor("l_out", layer=2).values, want)
        np.testing.assert_array_equal(np.asarray(self.run_.tensor("l_out-2")), want)

    def test_rows_are_tokens(self):
        x, tokens = self.run_.tensor("resid_post", layer=1), self.run_.tokens
        self.assertEqual([t.token_index for t in tokens], list(range(len(tokens))))
        self.assertEqual(x.tokens.tolist(), [t.token_index for t in tokens])
        self.assertEqual(x.positions.tolist(), [t.pos for t in tokens])
        generated = [t for t in tokens if t.phase == "decode"]
        self.assertEqual(len(self.run_.tensor("resid_post", layer=1, phase="decode")), len(generated))
        self.assertEqual(len(self.run_.tensor("resid_post", layer=1, phase="prefill")), len(tokens) - len(generated))
        self.assertEqual(len(self.run_.tensor("resid_post", layer=1, seq=0)), len(tokens))
        self.assertEqual(len(self.run_.tensor("resid_post", layer=1, seq=7)), 0)

    def test_logits_choose_the_next_token(self):
        logits = self.run_.tensor("lm_head")
        chosen = dict(zip(logits.tokens.tolist(), logits.values.argmax(axis=1).tolist()))
        tokens, compared = self.run_.tokens, 0
        for t, following in zip(tokens, tokens[1:]):
            if following.phase == "decode":
                self.assertEqual(chosen[t.token_index], following.token_id)
                compared += 1
        self.assertEqual(compared, sum(len(r["tokens"]) - 1 for r in self.run_.results))

    def test_recomputed_points_say_so(self):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            x = self.run_.tensor("attn_scores", layer=1)
        self.assertIn("plus the mask", x.note)
        self.assertIn("attn_scores is recorded as kq-1: times 0.125", str(said[0].message))
        self.assertEqual(x.values.shape[:2], (len(self.run_.tokens), 4))
        self.assertEqual(self.run_.tensor("resid_post", layer=1).note, "")

    def test_name_without_a_layer(self):
        run = llamatap.record(None, PROMPTS, tensors=["norm"], n_predict=3, out=self.folder.name + "/norm")
        for name, x in (("norm", run.tensor("norm")), ("norm-3", run.tensor("norm", layer=3))):
            self.assertEqual(x.name, name)
            want = np.load(io.BytesIO(program("cat", str(run.path), "--tensor", name, "--format", "npy")))
            np.testing.assert_array_equal(x.values, want)

    def test_layers_that_are_unknown(self):
        run = llamatap.record(None, PROMPTS, tensors=["l_out"], n_predict=3, out=self.folder.name + "/unknown",
                              args=["--tap-token", "last"])
        want = run.tensor("l_out", layer=3).values
        (run.path / "activations.stream.idx").unlink()
        subprocess.run([llamatap.find_program(), "verify", "--repair", str(run.path)], check=False, capture_output=True)
        again = llamatap.open(run.path)
        self.assertEqual(again.tensor("l_out-3").values.tobytes(), want.tobytes())
        with self.assertRaisesRegex(ValueError, "l_out is several tensors: give one of l_out-0, l_out-1"):
            again.tensor("l_out")

    def test_rows_of_several_shapes(self):
        run = llamatap.record(None, ["go " * 250], tensors=["kq-1"], n_predict=20, out=self.folder.name + "/shapes",
                              args=["-fa", "off", "-c", "512"])
        self.assertGreater(len({t.array.shape[2] for t in run.packets("kq", 1)}), 1)
        with self.assertRaisesRegex(ValueError, "differ in shape: go through run.packets"):
            run.tensor("kq", layer=1)

    def test_errors_name_the_remedy(self):
        for args, error, text in [(("nothing",), KeyError, "was not captured; there are .*l_out"),
                                  (("l_out", 5), KeyError, r"l_out of layer 5 was not .*: l_out has layers \[1, 2, 3\]"),
                                  (("l_out", 1, "xx"), ValueError, "'xx': give 'prefill' or 'decode'"),
                                  (("l_out",), ValueError, r"of layers \[1, 2, 3\]: give layer="),
                                  (("resid_post", 5), KeyError, r"of layers \[1, 2, 3\]: give one of them"),
                                  (("lm_head", 3), KeyError, "lm_head belongs to the model: leave layer= out")]:
            with self.assertRaisesRegex(error, text):
                self.run_.tensor(*args[:2], phase=args[2] if len(args) > 2 else None)
        with self.assertRaisesRegex(llamatap.ProgramError, "unknown point|no point"):
            llamatap.record(None, ["a"], points=["nix"], out=self.folder.name)
        with self.assertRaisesRegex(FileNotFoundError, "give a run directory"):
            llamatap.open(self.folder.name + "/nothing")
        with self.assertRaisesRegex(FileNotFoundError, "give a run directory"):
            llamatap.open(self.run_.path / "metadata.json")
        with self.assertRaisesRegex(ValueError, "there are tokens, events, ledger"):
            self.run_.arrow("nix")

    def test_runs_at_once(self):
        made = {}

        def work(prompt):
            made[prompt] = llamatap.record(None, [prompt], points=["resid_post"], layers=[1, 2],
                                           out=self.folder.name + "/two")

        threads = [threading.Thread(target=work, args=(prompt,)) for prompt in PROMPTS]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for prompt in PROMPTS:
            self.assertTrue(made[prompt].text.endswith(prompt))
            self.assertEqual(made[prompt].names(), {"l_out": [1, 2]})

    def test_tokens_of_an_unfinished_run(self):
        for run in [self.run_, llamatap.record(None, ["h\u00e9llo \u2603", "two"], layers="2", n_predict=9,
                                               args=["-np", "2"], out=self.folder.name + "/bytes")]:
            copy = self.copy(run)
            for name in ("manifest.json", "activations_tokens.json"):
                (copy.path / name).unlink()
            self.assertEqual(copy.tokens, run.tokens)
            index = (copy.path / "activations.stream.idx").read_bytes()
            (copy.path / "activations.stream.idx").write_bytes(index[:len(index) // 2])
            x = copy.tensor("l_out", layer=2)
            self.assertGreater(len(copy.tokens), 0)
            self.assertEqual([t.token_id for t in copy.tokens], [t.token_id for t in run.tokens[:len(copy.tokens)]])
            self.assertLessEqual(set(x.tokens.tolist()), {t.token_index for t in copy.tokens})
            self.assertEqual(len(copy.tensor("l_out", layer=2, phase="prefill", seq=0)),
                             sum(t.phase == "prefill" and t.seq_id == 0 for t in copy.tokens[:len(x)]))

    def test_resolution_of_an_unfinished_run(self):
        copy = self.copy(self.run_)
        (copy.path / "activations_tokens.json").unlink()
        x = copy.tensor("l_out", layer=2)
        newest = int(x.executions[-1])
        with open(copy.path / "activations.stream.idx", "ab") as f:
            f.write(bytes(4) + bytes([4, 0, 0, 6]) + bytes(4) + bytes([0, newest, newest, 3]))
        changed = [t.token_index for t, was in zip(copy.tokens, self.run_.tokens) if t.phase != was.phase]
        self.assertEqual(changed, x.tokens[x.executions == newest].tolist())

    def copy(self, run):
        copy = Path(tempfile.mkdtemp(dir=self.folder.name), "copy")
        shutil.copytree(run.path, copy)
        return llamatap.open(copy)

    def test_damaged_files(self):
        for name, text in [("activations.stream", "is truncated"), ("activations_tokens.json", "is damaged"),
                           ("metadata.json", "is damaged")]:
            path = self.copy(self.run_).path
            size = (path / name).stat().st_size
            os.truncate(path / name, 200)
            if name == "activations.stream":
                (path / "manifest.json").unlink()
            elif name == "activations_tokens.json":
                os.truncate(path / name, size)  # zeros
            with self.assertRaisesRegex(ValueError, f"{name} {text}.*llamatap verify --repair {path}$"):
                run = llamatap.open(path)
                run.tensor("l_out", layer=1, phase="decode")

    def test_damaged_manifest(self):
        run = self.copy(self.run_)
        manifest = run.path / "manifest.json"
        text = manifest.read_text()
        self.assertTrue(run.sealed)
        for damaged in [text[:99], text.replace('"sealed": "2', '"sealed": "1'), "[]", text.replace("sealed", "seated"),
                        text.replace('"version": 2', '"version": 1'), text.replace('"version": 2', '"version": 3')]:
            self.assertNotEqual(damaged, text)
            manifest.write_text(damaged)
            self.assertFalse(run.sealed)
            with self.assertRaisesRegex(ValueError, "manifest.json is damaged: .*llamatap verify"):
                llamatap.open(run.path)

    def test_copies_that_were_cut_short(self):
        for name in ["activations.stream", "activations.stream.idx", "activations_tokens.json"]:
            path = self.copy(self.run_).path
            size = (path / name).stat().st_size
            os.truncate(path / name, size - 1)
            with self.assertRaisesRegex(ValueError, f"{name} has {size - 1} bytes, the run had {size}.*verify {path}$"):
                llamatap.open(path)

    def test_a_prompt_that_is_too_long(self):
        with self.assertWarnsRegex(UserWarning, "1 of 2 prompts failed.*line 1: prompt is too long"):
            run = llamatap.record(None, ["go " * 600, "Bye"], points=["resid_post"], layers=[3], args=["-c", "256"],
                                  out=self.folder.name + "/long")
        self.assertEqual(["error" in r for r in run.results], [True, False])
        self.assertTrue(run.text.endswith("Bye"))

    def test_codec_that_decides_the_type(self):
        run = llamatap.record(None, ["a"], layers=[2], n_predict=2, dtype=None, out=self.folder.name + "/preset",
                              args=["--tap-preset", "balanced"])
        self.assertEqual(run.tensor("l_out").values.shape, (3, 256))

    def test_no_folder_is_left(self):
        folder = tempfile.mkdtemp(dir=self.folder.name)
        for args, error, text in [({}, ValueError, "nothing to record: give points="),
                                  ({"points": ["resid_post"], "layers": []}, ValueError, "layers is empty"),
                                  ({"points": ["nix"]}, llamatap.ProgramError, "point"),
                                  ({"tensors": ["l_out"], "args": ["-c", "0x"]}, llamatap.ProgramError, "0x")]:
            with mock.patch.object(tempfile, "tempdir", folder), self.assertRaisesRegex(error, text):
                llamatap.record(None, ["a"], **args)
            self.assertEqual(os.listdir(folder), [])

    def test_tables(self):
        import pyarrow.parquet

        ledger = self.run_.arrow("ledger")
        self.assertEqual(ledger.num_rows, pyarrow.parquet.read_metadata(self.run_.path / "trace.parquet").num_rows)
        self.assertEqual(self.run_.arrow("tokens")["text"].to_pylist(), [t.text for t in self.run_.tokens])
        self.assertGreater(self.run_.arrow("kv").num_rows, 0)
        self.assertGreater(self.run_.arrow("regions").num_rows, 0)
        lines = (self.run_.path / "resource.jsonl").read_text().count("\n")
        self.assertEqual(self.run_.arrow("events").num_rows, lines)
        kinds = collections.Counter(e["event"] for e in self.run_.events())
        for kind, n in kinds.items():
            self.assertEqual(sum(1 for _ in self.run_.events(kind)), n)
        self.assertEqual(set(self.run_.arrow("events").column_names), {key for e in self.run_.events() for key in e})
        with tempfile.TemporaryDirectory() as empty, self.assertRaisesRegex(FileNotFoundError, "--tap-resource-level"):
            shutil.copy(self.run_.path / "metadata.json", empty)
            llamatap.open(empty).arrow("events")

    def test_shared_prompt(self):
        model = self.folder.name + "/shared.gguf"
        program("synth", "-o", model, "--quiet")
        program("llama-batched", "-m", model, "-p", "func main() {", "-np", "3", "-n", "9", "-kvu", "--tap-tensor", "l_out",
                "--tap-out", self.folder.name + "/shared")
        run = llamatap.open(self.folder.name + "/shared")
        copy = self.copy(run)
        (copy.path / "manifest.json").unlink()
        (copy.path / "activations_tokens.json").unlink()
        for of in (run, copy):
            for seq in range(3):
                x = of.tensor("l_out", layer=2, seq=seq)
                self.assertEqual(x.positions.tolist(), list(range(len(x))))
                self.assertEqual(len(of.tensor("l_out", layer=2, seq=seq, phase="decode")),
                                 sum(t.phase == "decode" and t.seq_id == seq for t in run.tokens))
        self.assertEqual(copy.tokens, run.tokens)

    def test_parts_in_order(self):
        import pyarrow.parquet

        copy, ledger = self.copy(self.run_), self.run_.arrow("ledger")
        (copy.path / "trace.parquet").rename(copy.path / "trace.1000.parquet")
        pyarrow.parquet.write_table(ledger[:7], copy.path / "trace.999.parquet")
        self.assertTrue(copy.arrow("ledger")[:7].equals(ledger[:7]))
        program("run", "-p", "Hello", "-n", "60", "--temp", "0", "--ignore-eos", "--tap-tensor", "l_out", "--tap-segment",
                "100K", "--tap-out", str(copy.path / "runs"))
        run = llamatap.open(copy.path / "runs")
        want, segments = run.tokens, sorted(run.path.glob("seg-*"))
        self.assertGreater(len(segments), 1)
        for i, segment in enumerate(segments):
            segment.rename(run.path / f"seg-{99999 + i:05}")
        self.assertEqual(llamatap.open(run.path).tokens, want)

    def test_tables_of_a_live_run(self):
        copy = self.copy(self.run_)
        (copy.path / "manifest.json").unlink()
        (copy.path / "trace.parquet").unlink()
        with self.assertRaisesRegex(FileNotFoundError, "--tap-ledger; a live run has none yet"):
            copy.arrow("ledger")

    def test_token(self):
        rotated = self.run_.tokens[3:]
        with mock.patch.object(llamatap.Run, "tokens", rotated):
            self.assertEqual([self.run_.token(t.token_index) for t in rotated], rotated)
            for gone in (2, rotated[-1].token_index + 1):
                with self.assertRaises(KeyError):
                    self.run_.token(gone)

    def test_tokens_of_a_rotated_run(self):
        program("run", "-p", "Hello", "-c", "2048", "-n", "1000", "--temp", "0", "--ignore-eos", "--tap-tensor",
                "l_out", "--tap-dtype", "f32", "--tap-segment", "512K", "--tap-max-disk", "4M:rotate",
                "--tap-out", self.folder.name + "/rotated")
        run = llamatap.open(self.folder.name + "/rotated")
        x = run.tensor("l_out", layer=2)
        self.assertGreater(x.tokens[0], 0)
        self.assertEqual([run.token(i).pos for i in x.tokens], x.positions.tolist())

    def test_token_of_a_live_run(self):
        copy = self.copy(self.run_)
        (copy.path / "manifest.json").unlink()
        with mock.patch.object(llamatap.run, "read_tokens", wraps=llamatap.run.read_tokens) as read:
            self.assertEqual(copy.token(2), self.run_.tokens[2])
        read.assert_called_once()

    def test_text_of_any_script(self):
        run = llamatap.record(None, ["日本語 é 🎉 func"], points=["resid_post"], n_predict=1,
                              out=self.folder.name + "/script")
        self.assertIn("日本語 é 🎉 func", run.text)
        self.assertIn("日本語 é 🎉 func".encode(), b"".join(t.token_bytes for t in run.tokens))
        self.assertIn("\ufffd", [t.text for t in run.tokens][1])

    def test_prompts_of_ids(self):
        run = llamatap.record(None, [[2048, 286, 310], np.array([286, 310])], points=["embeddings"], n_predict=0,
                              out=self.folder.name + "/ids")
        self.assertEqual([t.token_id for t in run.tokens], [2048, 286, 310, 286, 310])

    def test_no_tensors(self):
        run = llamatap.record(None, ["a"], out=self.folder.name + "/kv", args=["--tap-kv"])
        self.assertGreater(run.arrow("kv").num_rows, 0)

    def test_reader_that_leaves(self):
        for unbuffered in ("", "1"):  # the pipe breaks at the end, or within a line
            reads, writes = os.pipe()
            os.close(reads)
            done = subprocess.run([sys.executable, "-m", "llamatap", str(self.run_.path / "activations.stream")],
                                  stdout=writes, stderr=subprocess.PIPE, text=True,
                                  env=dict(os.environ, PYTHONPATH=str(Path(llamatap.__file__).parents[1]),
                                           PYTHONUNBUFFERED=unbuffered))
            os.close(writes)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_last_layer_without_outputs(self):
        run = llamatap.record(None, ["func main() {"], points=["resid_post", "lm_head"], n_predict=0,
                              out=self.folder.name + "/last")
        for name, layer, what in [("resid_post", 5, "resid_post of layer 5"), ("l_out", 5, "l_out of layer 5"),
                                  ("l_out-5", None, "l_out-5"), ("lm_head", None, "lm_head")]:
            with self.assertRaisesRegex(KeyError, f"'{what} has no rows: .*n_predict of at least 1.*--all-rows"):
                run.tensor(name, layer)
        with self.assertRaisesRegex(KeyError, "resid_post of layer 5 of context 1 was not captured"):
            run.tensor("resid_post", layer=5, ctx=1)
        run = llamatap.record(None, ["func main() {"], points=["resid_post"], n_predict=0, args=["--all-rows"],
                              out=self.folder.name + "/rows")
        self.assertEqual(len(run.tensor("resid_post", layer=5)), len(run.tokens))

    def test_newest_of_a_second(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, sealed in (("dddd", 2), ("aaaa", 3), ("ffff", 1)):
                run = Path(folder) / "m" / f"run_20260102_030405_{name}"
                run.mkdir(parents=True)
                shutil.copy(self.run_.path / "metadata.json", run)
                (run / "manifest.json").write_text('{"version": 1, "files": []}')
                os.utime(run / "manifest.json", (sealed, sealed))
            self.assertEqual(llamatap.open(folder).path.name, "run_20260102_030405_aaaa")
            (run / "manifest.json").unlink()  # a live one
            self.assertEqual(llamatap.open(folder).path.name, "run_20260102_030405_ffff")

    def test_newest(self):
        out = self.folder.name + "/newest"
        for _ in range(3):
            run = llamatap.record(None, ["a"], points=["embeddings"], out=out)
            self.assertEqual(llamatap.open(out).path, run.path)
            self.assertEqual(program("runs", out).decode().split("\n")[1].split()[0], run.path.name)
        self.assertTrue(self.run_.sealed)

    def test_dataset(self):
        made = self.run_.dataset(self.folder.name + "/set", tensors=["l_out"], layers="1")
        if isinstance(made, Path):  # without the datasets package
            import pyarrow.parquet

            made = pyarrow.parquet.read_table(next(made.glob("**/*.parquet"))).to_pylist()
        self.assertEqual(sorted(row["token_index"] for row in made), [t.token_index for t in self.run_.tokens])

    def test_segments(self):
        program("run", "-p", "Hello", "-n", "120", "--temp", "0", "--ignore-eos", "--tap-tensor", "l_out", "--tap-segment",
                "100K", "--tap-out", self.folder.name + "/segments")
        run = llamatap.open(self.folder.name + "/segments")
        self.assertGreater(len(list(run.path.glob("seg-*"))), 1)
        x = run.tensor("l_out", layer=2)
        self.assertEqual(x.tokens.tolist(), list(range(len(run.tokens))))
        want = np.load(io.BytesIO(program("cat", str(run.path), "--tensor", "l_out-2", "--format", "npy")))
        np.testing.assert_array_equal(x.values, want)

    def test_live(self):
        path = self.folder.name + "/live.sock"
        found = []
        reader = threading.Thread(target=lambda: found.extend(llamatap.read("unix:" + path)))
        reader.start()
        while not _listens(path):
            time.sleep(0.01)
        out = self.folder.name + "/live"
        program("run", "-p", "Hello", "-n", "9", "--temp", "0", "--tap-tensor", "l_out", "--tap-sink", "unix:" + path,
                "--tap-out", out)
        reader.join()
        kept = list(llamatap.open(out).packets())
        self.assertEqual(len(found), len(kept))
        for live, file in zip(found, kept):
            self.assertEqual((live.name, live.execution), (file.name, file.execution))
            np.testing.assert_array_equal(live.array, file.array)


class Installed(unittest.TestCase):
    def test_needs_numpy_alone(self):
        script = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in {*sys.stdlib_module_names, "numpy", "llamatap"}:
            raise ModuleNotFoundError("No module named " + name, name=name)

sys.meta_path.insert(0, Missing())
import llamatap
try:
    import llamatap.interp
except ImportError as e:
    print(e)
"""
        path = str(Path(llamatap.__file__).parents[1])
        out = subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, capture_output=True, text=True,
                             env={**os.environ, "PYTHONPATH": path}).stdout
        self.assertRegex(out, r"needs interp-engine and PyTorch .*pip install 'llamatap\[interp\]'")


def _listens(path):
    """Whether a socket at path is bound and accepts, without connecting to it."""
    flags = [line.split()[3] for line in Path("/proc/net/unix").read_text().splitlines() if line.endswith(" " + path)]
    return "00010000" in flags


if __name__ == "__main__":
    unittest.main()
