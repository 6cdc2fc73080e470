package synth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
)

var update = flag.Bool("update", false, "write the golden files")

func donor(t testing.TB) *gguf.Metadata {
	f, err := gguf.ReadBytes(llamatap.DefaultModel)
	if err != nil {
		t.Fatal(err)
	}
	return &f.Metadata
}

// plan is a tiny model of that architecture and type.
func plan(t testing.TB, arch string, typ gguf.Type) *Model {
	t.Helper()
	c, err := New(arch, "tiny")
	if err != nil {
		t.Fatal(err)
	}
	c.Type, c.Seed = typ, 1
	m, err := Plan(c, donor(t))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// bytesOf makes the model in memory.
func bytesOf(t testing.TB, m *Model) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := m.Write(t.Context(), &out, nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// every lists the architectures of both kinds. Under the race detector two stand for all: the workers share out
// chunks of tensors, whatever model they are of, and jamba has all sorts.
func every() []string {
	if testing.Short() {
		return []string{"jamba", "bert"}
	}
	return append(Archs(), Encoders()...)
}

// TestGolden keeps the bytes of each architecture, and one of them in each type: the same on every machine.
func TestGolden(t *testing.T) {
	var got strings.Builder
	add := func(arch string, typ gguf.Type) {
		p := bytesOf(t, plan(t, arch, typ))
		fmt.Fprintf(&got, "%x  %s %v, %d bytes\n", sha256.Sum256(p), arch, typ, len(p))
	}
	for _, arch := range every() {
		add(arch, gguf.Q8_0)
	}
	for _, typ := range testenv.Brief(Types(), 2) {
		add("mamba", typ)
	}
	const path = "testdata/sha256.golden"
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		want = slices.Concat(slices.DeleteFunc(slices.Collect(bytes.Lines(want)),
			func(line []byte) bool { return !strings.Contains(got.String(), string(line)) })...)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}

// TestFileIsValid: the reader accepts every architecture and type, and it is what was asked for.
func TestFileIsValid(t *testing.T) {
	for i, arch := range testenv.Brief(every(), 3) {
		for j, typ := range testenv.Brief(Types(), 2) {
			if !testenv.Nightly() && i%len(Types()) != j {
				continue
			}
			m := plan(t, arch, typ)
			p := bytesOf(t, m)
			f, err := gguf.ReadBytes(p)
			if err != nil {
				t.Fatalf("%s %v: %v", arch, typ, err)
			}
			id := gguf.Identify(f, "")
			if id.Parameters != m.Parameters() || id.Layers != 4 || id.Width != 256 || id.Vocab != 2080 {
				t.Errorf("%s %v: %+v", arch, typ, id)
			}
			if n, _ := f.Metadata.Int("synth.parameter_count"); n != id.Parameters {
				t.Errorf("%s %v: states %d parameters, has %d", arch, typ, n, id.Parameters)
			}
			name := "blk.1.attn_norm.weight"
			if arch == "bert" {
				name = "blk.1.attn_output_norm.weight"
			}
			if norm, ok := f.Tensor(name); !ok || norm.Type != gguf.F32 {
				t.Errorf("%s %v: %s is %v", arch, typ, name, norm)
			}
		}
	}
}

// TestWorkers: one worker makes the same bytes as many.
func TestWorkers(t *testing.T) {
	m := plan(t, "jamba", gguf.Q4_0)
	many := bytesOf(t, m)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if !bytes.Equal(bytesOf(t, m), many) {
		t.Error("the number of workers changes the file")
	}
}

// TestSameWeights: a file of another type holds the same weights, encoded.
func TestSameWeights(t *testing.T) {
	testenv.Once(t, "TestFileIsValid")
	plainFile := bytesOf(t, plan(t, "qwen3moe", gguf.F32))
	plain, err := gguf.ReadBytes(plainFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range Types() {
		p := bytesOf(t, plan(t, "qwen3moe", typ))
		f, err := gguf.ReadBytes(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.Tensors {
			got, want := &f.Tensors[i], &plain.Tensors[i]
			x := make([]float32, want.Values())
			if err := gguf.DecodeRow(x, gguf.F32, plainFile[want.Offset:want.End()]); err != nil {
				t.Fatal(err)
			}
			enc, err := gguf.AppendRow(nil, got.Type, x)
			if err != nil || !bytes.Equal(enc, p[got.Offset:got.End()]) {
				t.Errorf("%v is not the F32 tensor, encoded (%v)", got, err)
			}
		}
	}
}

func TestSeeds(t *testing.T) {
	a, b := plan(t, "llama", gguf.F16), plan(t, "llama", gguf.F16)
	b.Config.Seed = 2
	p, q := bytesOf(t, a), bytesOf(t, b)
	equal := 0
	for i := len(p) / 2; i+2 <= len(p); i += 2 {
		if p[i] == q[i] && p[i+1] == q[i+1] {
			equal++
		}
	}
	if n := len(p) / 4; equal > n/20 { // the norms' high bytes aside, few of 65536 bit patterns agree
		t.Errorf("two seeds agree in %d of %d numbers", equal, n)
	}
}

func TestNormal(t *testing.T) {
	const n = 1 << 20
	x := make([]float32, n)
	fillNormal(x, tensorKey(7, "t"), 0, 3, 2)
	var sum, square, next float64
	for i, v := range x {
		d := (float64(v) - 3) / 2
		sum += d
		square += d * d
		if i > 0 {
			next += d * (float64(x[i-1]) - 3) / 2
		}
		if math.Abs(d) > 3.47 {
			t.Fatalf("value %d is %g sigma out", i, d)
		}
	}
	// Standard errors are 1/√n for mean and correlation, about that for the variance: five of them.
	limit := 5 / math.Sqrt(n)
	if mean := sum / n; math.Abs(mean) > limit {
		t.Errorf("mean off by %g sigma", mean)
	}
	if v := square / n; math.Abs(v-1) > limit {
		t.Errorf("variance %g", v)
	}
	if c := next / n; math.Abs(c) > limit {
		t.Errorf("neighbours correlate by %g", c)
	}
	part := make([]float32, 100)
	fillNormal(part, tensorKey(7, "t"), 5000, 3, 2)
	if !slices.Equal(part, x[5000:5100]) {
		t.Error("a part of the sequence differs from the whole")
	}
}

// TestMix compares with the published output of SplitMix64 from state 1234567.
func TestMix(t *testing.T) {
	state := uint64(1234567)
	for _, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423} {
		state += golden
		if got := mix(state); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
}

func TestVocab(t *testing.T) {
	c, err := New("llama", "tiny")
	if err != nil {
		t.Fatal(err)
	}
	c.Vocab = 3000
	m, err := Plan(c, donor(t))
	if err != nil {
		t.Fatal(err)
	}
	tokens, _ := m.Meta.Texts("tokenizer.ggml.tokens")
	kinds, _ := m.Meta.Ints("tokenizer.ggml.token_type")
	if len(tokens) != 3000 || len(kinds) != 3000 || kinds[2999] != unusedToken || kinds[0] == unusedToken {
		t.Errorf("%d tokens, %d kinds", len(tokens), len(kinds))
	}
	seen := make(map[string]bool)
	for _, token := range tokens {
		if seen[token] {
			t.Fatalf("token %q stands twice", token)
		}
		seen[token] = true
	}
	for i, tensor := range m.Tensors() {
		if tensor.Name == "output.weight" && tensor.Shape[1] != 3000 {
			t.Errorf("tensor %d: %v", i, tensor)
		}
	}
}

// TestSizes: the presets have the sizes that their names promise.
func TestSizes(t *testing.T) {
	for preset, want := range map[string]float64{"6m": 5.8e6, "125m": 125e6, "350m": 350e6, "1b": 1e9} {
		for _, arch := range []string{"llama", "mamba", "qwen3"} {
			c, err := New(arch, preset)
			if err != nil {
				t.Fatal(err)
			}
			m, err := Plan(c, donor(t))
			if err != nil {
				t.Fatal(err)
			}
			if n := float64(m.Parameters()); n < 0.9*want || n > 1.1*want {
				t.Errorf("%s %s has %.0f parameters", arch, preset, n)
			}
		}
	}
	for _, arch := range every() {
		for _, preset := range Presets() {
			c, err := New(arch, preset)
			if err != nil {
				t.Fatal(err)
			}
			m, err := Plan(c, donor(t))
			if err != nil {
				t.Errorf("%s %s: %v", arch, preset, err)
				continue
			}
			t.Logf("%s %s: %s", arch, preset, sizeLabel(m.Parameters()))
		}
	}
}

func TestSizeLabel(t *testing.T) {
	for n, want := range map[int64]string{3426560: "3.4M", 9_949_999: "9.9M", 9_950_000: "10M", 981_665_792: "982M",
		999_499_999: "999M", 1_235_814_432: "1.2B"} {
		if got := sizeLabel(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	for _, c := range []struct {
		say    string
		change func(c *Config)
	}{
		{"unknown architecture", func(c *Config) { c.Arch = "gpt9" }},
		{"layers = -1", func(c *Config) { c.Layers = -1 }},
		{"not a multiple of 3 heads", func(c *Config) { c.Heads, c.KVHeads = 3, 3 }},
		{"cannot share 3 KV heads", func(c *Config) { c.KVHeads = 3 }},
		{"even number", func(c *Config) { c.HeadDim = 7 }},
		{"vocabulary of 100", func(c *Config) { c.Vocab = 100 }},
		{"vocabulary of 100000000", func(c *Config) { c.Vocab = 1e8 }},
		{"cannot be made as iq4_nl", func(c *Config) { c.Type = gguf.IQ4NL }},
		{"3 of 2 experts", func(c *Config) { c.Experts, c.ExpertsUsed, c.ExpertFF = 2, 3, 64 }},
	} {
		config, err := New("llama", "tiny")
		if err != nil {
			t.Fatal(err)
		}
		c.change(&config)
		if _, err := Plan(config, donor(t)); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("got %v, want %q", err, c.say)
		}
	}
	if _, err := New("llama", "9000b"); err == nil || !strings.Contains(err.Error(), "tiny, 6m, 125m, 350m, 1b") {
		t.Errorf("unknown size: %v", err)
	}
	config, _ := New("llama", "tiny")
	if _, err := Plan(config, &gguf.Metadata{}); err == nil {
		t.Error("planned without a tokenizer")
	}
}

// full is a disk with room for n bytes.
type full struct{ n int }

var errFull = errors.New("disk full")

func (f *full) Write(p []byte) (int, error) {
	if f.n -= len(p); f.n < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestWriteFails(t *testing.T) {
	m := plan(t, "llama", gguf.F32)
	before := runtime.NumGoroutine()
	for _, room := range []int{0, 10, 70_000, 3 << 20, 13_700_000} {
		if err := m.Write(t.Context(), &full{room}, nil); !errors.Is(err, errFull) {
			t.Errorf("room for %d bytes: %v", room, err)
		}
	}
	for range 100 { // goroutines have been waited for, but may not have left the scheduler
		runtime.Gosched()
	}
	if now := runtime.NumGoroutine(); now > before+1 {
		t.Errorf("%d goroutines before, %d after", before, now)
	}
}

func TestWriteFile(t *testing.T) {
	m := plan(t, "llama", gguf.Q8_0)
	folder := t.TempDir()
	path := filepath.Join(folder, "m.gguf")
	calls, last := 0, int64(0)
	if err := m.WriteFile(t.Context(), path, func(done, size int64) { calls++; last = size - done }); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, bytesOf(t, m)) {
		t.Errorf("the file differs from what Write gives (%v)", err)
	}
	if calls == 0 || last < 0 || last >= 32 {
		t.Errorf("%d calls of progress, the last %d bytes before the end", calls, last)
	}
	alone(t, folder, "m.gguf")
}

// alone fails if the folder holds anything but the names.
func alone(t *testing.T, folder string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	if !slices.Equal(have, names) {
		t.Errorf("the folder holds %q, want %q", have, names)
	}
}

// TestWriteFileLeavesNothing: cancelled in the middle, an existing file stays what it was and no other is left.
func TestWriteFileLeavesNothing(t *testing.T) {
	m := plan(t, "llama", gguf.F32)
	folder := t.TempDir()
	path := filepath.Join(folder, "m.gguf")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := m.WriteFile(ctx, path, func(done, size int64) {
		if done > size/2 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if p, _ := os.ReadFile(path); string(p) != "precious" {
		t.Errorf("the file was changed to %d bytes", len(p))
	}
	alone(t, folder, "m.gguf")
}

func TestWriteFileRefuses(t *testing.T) {
	m := plan(t, "llama", gguf.F32)
	folder := t.TempDir()
	if err := m.WriteFile(t.Context(), folder, nil); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("a folder: %v", err)
	}
	if err := m.WriteFile(t.Context(), os.DevNull, nil); err == nil ||
		!strings.Contains(err.Error(), "not an ordinary file") {
		t.Errorf("a device: %v", err)
	}
	missing := filepath.Join(folder, "none", "m.gguf")
	if err := m.WriteFile(t.Context(), missing, nil); !errors.Is(err, os.ErrNotExist) ||
		strings.Contains(err.Error(), ".part") {
		t.Errorf("a missing folder: %v", err)
	}
	alone(t, folder)
	err := m.writeError("m.gguf", &os.PathError{Op: "write", Path: "x.part", Err: syscall.ENOSPC})
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "m.gguf") ||
		!strings.Contains(err.Error(), "14 MB") || strings.Contains(err.Error(), ".part") {
		t.Errorf("a full disk: %v", err)
	}
}

// TestEveryTensorIsFinite: no NaN or infinity is written, and matrices have the variance that they should.
func TestEveryTensorIsFinite(t *testing.T) {
	testenv.Once(t, "TestFileIsValid")
	for _, arch := range every() {
		p := bytesOf(t, plan(t, arch, gguf.F32))
		f, err := gguf.ReadBytes(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.Tensors {
			tensor := &f.Tensors[i]
			var square float64
			for at := tensor.Offset; at < tensor.End(); at += 4 {
				x := float64(math.Float32frombits(binary.LittleEndian.Uint32(p[at:])))
				if math.IsNaN(x) || math.Abs(x) > 100 {
					t.Fatalf("%s: %v holds %g", arch, tensor, x)
				}
				square += x * x
			}
			rms := math.Sqrt(square / float64(tensor.Values()))
			if fan := float64(tensor.Shape[0]); len(tensor.Shape) == 3 &&
				(rms*math.Sqrt(fan) < 0.98 || rms*math.Sqrt(fan) > 1.02) {
				t.Errorf("%s: %v has root mean square %g", arch, tensor, rms)
			}
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, typ := range Types() {
		b.Run(typ.String(), func(b *testing.B) {
			m := plan(b, "llama", typ)
			b.SetBytes(4 * m.Parameters())
			b.ReportAllocs()
			for b.Loop() {
				if err := m.Write(b.Context(), &full{math.MaxInt}, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
