//go:build linux

package oracle

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestLateProgram taps a program that opens libllama by itself, for nobody else to see: the evidence is that of a
// program that is linked with it.
func TestLateProgram(t *testing.T) {
	linked, backends := testenv.Greedy(t, false)
	late, _ := testenv.Greedy(t, true)
	args := []string{testenv.Model(t), backends, "5"}
	want := execOf(t, everything, append([]string{linked}, args...)...).good(t).capture(t).sealed(t)
	got := execOf(t, everything, append([]string{late}, args...)...).good(t).capture(t).sealed(t)
	if got.stdout != want.stdout {
		t.Errorf("prints\n%s, linked\n%s", got.stdout, want.stdout)
	}
	if n := equalCaptures(t, "late", got, want); n < 100 {
		t.Errorf("only %d tensors were compared", n)
	}
	if !slices.EqualFunc(got.tokens, want.tokens, sameToken) {
		t.Errorf("tokens %+v, linked %+v", got.tokens, want.tokens)
	}
	if got.meta.Model != want.meta.Model || got.meta.Extra["entry_points_missing"] != nil {
		t.Errorf("model %+v, linked %+v; missing: %s", got.meta.Model, want.meta.Model,
			got.meta.Extra["entry_points_missing"])
	}
}

// pythonGreedy is greedy in Python, through ctypes: structures are passed as bytes, whatever is in them.
const pythonGreedy = `
import ctypes, sys
base, llama = ctypes.CDLL("libggml.so.0"), ctypes.CDLL("libllama.so.0")
class Value(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint64 * 64)]
def function(library, name, result, *arguments):
    f = getattr(library, name)
    f.restype, f.argtypes = result, arguments
    return f
pointer, number = ctypes.c_void_p, ctypes.c_int32
function(base, "ggml_backend_load_all_from_path", None, ctypes.c_char_p)(sys.argv[2].encode())
params = function(llama, "llama_model_default_params", Value)()
model = function(llama, "llama_model_load_from_file", pointer, ctypes.c_char_p, Value)(sys.argv[1].encode(), params)
params = function(llama, "llama_context_default_params", Value)()
ctx = function(llama, "llama_init_from_model", pointer, pointer, Value)(model, params)
vocab = function(llama, "llama_model_get_vocab", pointer, pointer)(model)
n_vocab = function(llama, "llama_vocab_n_tokens", number, pointer)(vocab)
batch = function(llama, "llama_batch_get_one", Value, pointer, number)
decode = function(llama, "llama_decode", number, pointer, Value)
logits = function(llama, "llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), pointer, number)
tokens = [1, 5, 6, 7]
for i in range(int(sys.argv[3])):
    ids = (number * len(tokens))(*tokens)
    if decode(ctx, batch(ctypes.addressof(ids), len(tokens))) != 0:
        sys.exit(5)
    row = logits(ctx, -1)
    tokens = [max(range(n_vocab), key=lambda k: row[k])]
    print(tokens[0], flush=True)
function(llama, "llama_free", None, pointer)(ctx)
`

// TestPython taps Python, which opens libllama through ctypes, started by the loader of libllama's C library.
func TestPython(t *testing.T) {
	python := testenv.NeedPython(t)
	dist := testenv.NeedLlama(t)
	script := textFile(t, pythonGreedy)
	loader := testenv.Loader(t)
	args := slices.Concat(loader, []string{python, script, testenv.Model(t), filepath.Join(dist, "run"), "5"})
	untapped, err := exec.Command(args[0], args[1:]...).Output()
	if err != nil {
		t.Fatal(err)
	}
	c := execOf(t, residual, args...).good(t).capture(t).sealed(t)
	if c.stdout != string(untapped) || strings.Count(c.stdout, "\n") != 5 {
		t.Errorf("prints\n%s, without the tap\n%s", c.stdout, untapped)
	}
	wantIDs(t, "Python", c.ids(), greedyRows(printedIDs(t, c.stdout)))
	wantPlain(t, c)
	if c.meta.Model.Name != "gopher-6m" || c.meta.Llama.Version == "" {
		t.Errorf("metadata says %+v, %+v", c.meta.Model, c.meta.Llama)
	}
}

// TestGoProgram taps a Go program that uses libllama: llamatap's own runner, under another llamatap.
func TestGoProgram(t *testing.T) {
	args := []string{"-p", prompt, "-n", "6", "--temp", "0", "-t", "1"}
	want := record(t, everything, args...)
	got := execOf(t, everything, slices.Concat([]string{testenv.NeedBinary(t), "run"},
		args)...).good(t).capture(t).sealed(t)
	if got.stdout != want.stdout {
		t.Errorf("prints %q, want %q", got.stdout, want.stdout)
	}
	if n := equalCaptures(t, "Go program", got, want); n < 100 {
		t.Errorf("only %d tensors were compared", n)
	}
	if others := got.meta.Extra["processes_not_recorded"]; others != nil {
		t.Errorf("%s processes count as not recorded", others)
	}
}

// TestTapUnderTap: a llamatap that is to record does not run under another one's tap.
func TestTapUnderTap(t *testing.T) {
	for _, inner := range [][]string{{"run", "--tap-layers", "1", "-p", "a", "-n", "1"}, {"exec", "--tap-layers", "1",
		"--", "true"}, {"llama-completion", "--tap-layers", "1", "--version"}} {
		o := execOf(t, residual, append([]string{testenv.NeedBinary(t)}, inner...)...)
		first, _, _ := strings.Cut(o.stderr, "\n")
		if o.status != 2 || !oneLine(first, "another llamatap", "--tap-") || len(o.dirs) != 0 {
			t.Errorf("%q: status %d, %d directories\n%s", inner, o.status, len(o.dirs), o.stderr)
		}
	}
}
