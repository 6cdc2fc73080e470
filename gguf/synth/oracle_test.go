package synth

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
)

// nightly says whether the long forms run.
// fileOf makes the model as a file of a folder that goes with the test.
func fileOf(t *testing.T, m *Model) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := m.WriteFile(t.Context(), path, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

// run runs a stock tool to its end and gives what it printed.
func run(t *testing.T, cmd *exec.Cmd) (stdout, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, tail(log.String()))
	}
	return out.String(), log.String()
}

func tail(s string) string { return s[max(0, len(s)-2000):] }

// runTypes are the types that an architecture is run with: all of them at night, else one, in turn, so that every
// type is run.
func runTypes(i int) []gguf.Type {
	if testenv.Nightly() {
		return Types()
	}
	types := []gguf.Type{gguf.Q8_0, gguf.F32, gguf.Q4_K, gguf.F16, gguf.Q4_0, gguf.BF16, gguf.Q5_0}
	return types[i%len(types) : i%len(types)+1]
}

// prompt has more than 16 tokens, so that with -ub 8 it takes several micro-batches.
const prompt = `func main() { fmt.Println("hello world") } // and some more words for a longer prompt`

// TestLlamaRuns: llama.cpp loads every model and writes text, with flash attention on and off, and with prompts of
// one and of several micro-batches.
func TestLlamaRuns(t *testing.T) {
	testenv.Once(t, "TestFileIsValid")
	tool := testenv.NeedTool(t, "llama-completion")
	for i, arch := range Archs() {
		for _, typ := range runTypes(i) {
			t.Run(fmt.Sprintf("%s/%v", arch, typ), func(t *testing.T) {
				path := fileOf(t, plan(t, arch, typ))
				for _, s := range testenv.ByDay([][]string{{"-fa", "off", "-ub", "8"}, {"-fa", "on", "-ub", "512"},
					{"-fa", "on", "-ub", "8"}, {"-fa", "off", "-ub", "512"}}, 1) {
					if text := complete(t, tool, path, s); strings.TrimSpace(text) == "" {
						t.Errorf("%v: no text", s)
					}
				}
			})
		}
	}
}

// completeTries bounds the repetitions of complete.
const completeTries = 30

// complete gives the text that llama-completion writes behind the prompt. Its logger, which prints the text too, is
// lost with what it still holds when the process exits early (llama.cpp issue 22142): with a model as small as
// these that is one run in five. Such a run has status 0 and no text, and is repeated; one that fails is not.
func complete(t *testing.T, tool *testenv.Tool, model string, settings []string) string {
	t.Helper()
	args := append([]string{"-m", model, "-p", prompt, "-n", "8", "--temp", "0", "-no-cnv", "-c", "512"}, settings...)
	for range completeTries {
		out, _ := run(t, tool.Command(args...))
		if text, ok := strings.CutPrefix(strings.TrimSpace(out), prompt); ok && text != "" {
			return text
		}
	}
	t.Errorf("%v: no text in %d runs", settings, completeTries)
	return ""
}

// TestLlamaNodesAreFinite: no node of the prompt's graph holds a NaN or an infinity.
func TestLlamaNodesAreFinite(t *testing.T) {
	testenv.Once(t, "TestFileIsValid")
	tool := testenv.NeedTool(t, "llama-eval-callback")
	sum := regexp.MustCompile(`sum = (\S+)`)
	for _, arch := range testenv.ByDay(Archs(), 5) {
		t.Run(arch, func(t *testing.T) {
			out, _ := run(t, tool.Command("-m", fileOf(t, plan(t, arch, gguf.F32)), "-p", prompt, "-t", "2", "-c",
				"512"))
			sums := sum.FindAllStringSubmatch(out, -1)
			if len(sums) < 50 {
				t.Fatalf("only %d nodes were printed", len(sums))
			}
			for _, s := range sums {
				// Masks hold −Inf on purpose; sums of them are printed as -inf.
				if x, err := strconv.ParseFloat(s[1], 64); err != nil || math.IsNaN(x) || math.IsInf(x, 1) {
					t.Errorf("a node has %s", s[0])
				}
			}
		})
	}
}

// TestTensorMapEqualsLlama: 'llama-gguf FILE r n' finds the same tensors at the same places.
func TestTensorMapEqualsLlama(t *testing.T) {
	testenv.Once(t, "TestFileIsValid")
	tool := testenv.NeedTool(t, "llama-gguf")
	line := regexp.MustCompile(`tensor\[\d+\]: name = (\S+), size = (\d+), offset = (\d+)\n`)
	for i, arch := range every() {
		path := fileOf(t, plan(t, arch, Types()[i%len(Types())]))
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		out, log := run(t, tool.Command(path, "r", "n"))
		var got, want []string
		for _, m := range line.FindAllStringSubmatch(out+log, -1) {
			got = append(got, fmt.Sprint(m[1:]))
		}
		for i := range f.Tensors {
			tensor := &f.Tensors[i]
			want = append(want, fmt.Sprint([]string{tensor.Name, fmt.Sprint(tensor.Bytes),
				fmt.Sprint(tensor.Offset - f.DataOffset)}))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: llama-gguf has\n%v\nwe have\n%v", arch, got, want)
		}
	}
}

// quantize runs llama-quantize and gives the file that it made.
func quantize(t *testing.T, tool *testenv.Tool, from, to string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "q.gguf")
	run(t, tool.Command("--pure", "--allow-requantize", from, path, to, "2"))
	return path
}

// loaded is a file with its bytes.
type loaded struct {
	*gguf.File
	bytes []byte
}

func load(t *testing.T, path string) loaded {
	t.Helper()
	p, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.ReadBytes(p)
	if err != nil {
		t.Fatal(err)
	}
	return loaded{f, p}
}

func (l loaded) data(tensor *gguf.Tensor) []byte { return l.bytes[tensor.Offset:tensor.End()] }

func (l loaded) values(t *testing.T, tensor *gguf.Tensor) []float32 {
	t.Helper()
	x := make([]float32, tensor.Values())
	if err := gguf.DecodeRow(x, tensor.Type, l.data(tensor)); err != nil {
		t.Fatal(err)
	}
	return x
}

// quantizeArchs are the architectures whose files are compared with those of llama-quantize: mamba has a matrix
// whose rows suit no type.
func quantizeArchs() []string {
	if testenv.Nightly() {
		return Archs()
	}
	return []string{"qwen3moe", "mamba", "gpt2"}
}

// TestQuantizeEqualsLlama: what llama-quantize makes of the F32 file has the same types, and bytes, as the file
// that is made in that type. Q4_K leaves the choice of scales open; there our error may be a quarter larger.
func TestQuantizeEqualsLlama(t *testing.T) {
	testenv.Once(t, "TestFileIsValid")
	tool := testenv.NeedTool(t, "llama-quantize")
	for _, arch := range quantizeArchs() {
		plain := fileOf(t, plan(t, arch, gguf.F32))
		exact := load(t, plain)
		for _, typ := range Types()[1:] {
			ours := load(t, fileOf(t, plan(t, arch, typ)))
			theirs := load(t, quantize(t, tool, plain, fileType(typ).String()))
			if len(ours.Tensors) != len(theirs.Tensors) {
				t.Fatalf("%s %v: %d tensors, llama-quantize has %d", arch, typ, len(ours.Tensors), len(theirs.Tensors))
			}
			for i := range ours.Tensors {
				a := &ours.Tensors[i]
				b, ok := theirs.Tensor(a.Name)
				if !ok || a.Type != b.Type || !slices.Equal(a.Shape, b.Shape) {
					t.Errorf("%s %v: %v, llama-quantize has %v", arch, typ, a, b)
					continue
				}
				if a.Type == gguf.Q4_K {
					source, _ := exact.Tensor(a.Name)
					x := exact.values(t, source)
					if e, f := rmsError(x, ours.values(t, a)), rmsError(x, theirs.values(t, b)); e > 1.25*f {
						t.Errorf("%s: error %g, llama-quantize's %g", a, e, f)
					}
				} else if !bytes.Equal(ours.data(a), theirs.data(b)) {
					t.Errorf("%s %v: %v differs from llama-quantize's", arch, typ, a)
				}
			}
		}
	}
}

func rmsError(x, y []float32) float64 {
	var sum float64
	for i := range x {
		d := float64(x[i]) - float64(y[i])
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(x)))
}

// TestDecodeEqualsLlama: llama-quantize turns a quantised file back into F32; DecodeRow gives the same bits.
func TestDecodeEqualsLlama(t *testing.T) {
	testenv.Once(t, "TestFileIsValid")
	tool := testenv.NeedTool(t, "llama-quantize")
	plain := fileOf(t, plan(t, "qwen3", gguf.F32))
	for _, typ := range []string{"F16", "BF16", "Q8_0", "Q5_0", "Q4_0", "Q4_K_S", "Q6_K"} {
		packed := quantize(t, tool, plain, typ)
		theirs := load(t, quantize(t, tool, packed, "F32"))
		ours := load(t, packed)
		for i := range ours.Tensors {
			a := &ours.Tensors[i]
			b, ok := theirs.Tensor(a.Name)
			if !ok || b.Type != gguf.F32 {
				t.Fatalf("%s: llama-quantize has %v", typ, b)
			}
			if !slices.Equal(ours.values(t, a), theirs.values(t, b)) {
				t.Errorf("%s: %v decodes differently (%g)", typ, a, rmsError(ours.values(t, a), theirs.values(t, b)))
			}
		}
	}
}
