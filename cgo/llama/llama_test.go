//go:build llama

package llama

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap"
)

func loadDefault(t testing.TB) *Model {
	t.Helper()
	m, err := LoadModelBytes(context.Background(), "gopher", llamatap.DefaultModel, DefaultModelParams())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func newContext(t testing.TB, m *Model, change func(*ContextParams)) *Context {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	p := DefaultContextParams()
	p.Threads, p.BatchThreads = 1, 1
	if change != nil {
		change(&p)
	}
	x, err := m.NewContext(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return x
}

// decode decodes tokens from position pos on; the last one asks for logits.
func decode(t testing.TB, x *Context, pos int, tokens ...Token) error {
	t.Helper()
	b, err := NewBatch(len(tokens), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i, token := range tokens {
		if err := b.Add(token, Pos(pos+i), i == len(tokens)-1, 0); err != nil {
			t.Fatal(err)
		}
	}
	return x.Decode(b)
}

func TestDefaults(t *testing.T) {
	if got, want := DefaultModelParams(), (ModelParams{GPULayers: -1,
		Load: LoadAuto}); got.GPULayers != want.GPULayers ||
		got.Load != want.Load || got.CheckTensors || got.Devices != nil || got.Progress != nil {
		t.Errorf("model: got %+v, want %+v", got, want)
	}
	want := ContextParams{
		Size: 512, Batch: 2048, MicroBatch: 512, Sequences: 1, Threads: 4, BatchThreads: 4,
		FlashAttention: FlashAttentionAuto, TypeK: CacheF16, TypeV: CacheF16, NoPerf: true, SlidingFull: true,
		Rope:    Rope{Scaling: RopeOfModel, YarnExtFactor: -1, YarnAttnFactor: -1, YarnBetaFast: -1, YarnBetaSlow: -1},
		Pooling: PoolOfModel, Attention: AttentionOfModel,
	}
	if got := DefaultContextParams(); got != want {
		t.Errorf("context: got %+v, want %+v", got, want)
	}
}

// TestParams translates values that differ from the defaults and reads them back from a context.
func TestParams(t *testing.T) {
	x := newContext(t, loadDefault(t), func(p *ContextParams) {
		p.Size, p.Batch, p.MicroBatch = 1024, 96, 32
	})
	if x.Size() != 1024 || x.Batch() != 96 || x.MicroBatch() != 32 {
		t.Errorf("context of %d, %d, %d tokens; want 1024, 96, 32", x.Size(), x.Batch(), x.MicroBatch())
	}
}

func TestModel(t *testing.T) {
	m := loadDefault(t)
	if m.Layers() != 6 || m.Width() != 256 || m.Parameters() != 5786880 || m.Vocab().Tokens() != 2080 {
		t.Errorf("%d layers, width %d, %d parameters, %d tokens", m.Layers(), m.Width(), m.Parameters(),
			m.Vocab().Tokens())
	}
	if arch, ok := m.Meta("general.architecture"); !ok || arch != "llama" {
		t.Errorf("general.architecture = %q, %v", arch, ok)
	}
	if _, ok := m.Meta("no.such.key"); ok {
		t.Error("a key that does not exist was found")
	}
	if !strings.Contains(m.Description(), "llama") || m.HasEncoder() || !m.HasDecoder() {
		t.Errorf("%q, encoder %v, decoder %v", m.Description(), m.HasEncoder(), m.HasDecoder())
	}
}

func TestVocab(t *testing.T) {
	v := loadDefault(t).Vocab()
	if v.Begin() != 2048 || v.End() != 2048 || !v.EndsGeneration(2048) || v.EndsGeneration(10) || !v.AddsBegin() {
		t.Errorf("special tokens: begin %d, end %d", v.Begin(), v.End())
	}
	for _, text := range []string{"", "func main() {\n\treturn\n}\n", "žluťoučký kůň 😀", "a\x00b",
		strings.Repeat("x ", 3000)} {
		tokens, err := v.Tokenize(text, false, false)
		if err != nil {
			t.Fatal(err)
		}
		var pieces []byte
		for _, token := range tokens {
			pieces = v.AppendPiece(pieces, token, false)
		}
		if string(pieces) != text {
			t.Errorf("pieces %.40q, want %.40q", pieces, text)
		}
	}
	if got, _ := v.Tokenize("a<|endoftext|>", true, true); len(got) != 3 || got[0] != 2048 || got[2] != 2048 {
		t.Errorf("special parsed: %v", got)
	}
	if got, _ := v.Tokenize("a<|endoftext|>", false, false); slices.Contains(got, 2048) {
		t.Errorf("special taken as text: %v", got)
	}
	if got := v.AppendPiece(nil, 99999, true); got != nil {
		t.Errorf("a token that does not exist has the piece %q", got)
	}
	if got := string(v.AppendPiece(nil, 2048, true)); got != "<|endoftext|>" {
		t.Errorf("control token shown as %q", got)
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.gguf")
	if err := os.WriteFile(bad, []byte("GGUF\x03\x00\x00\x00 and then nothing of use"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("the reason")
	cancel(cause)
	tests := []struct {
		name string
		load func() (*Model, error)
		want error
	}{
		{"missing", func() (*Model, error) {
			return LoadModel(context.Background(), filepath.Join(dir, "none"), DefaultModelParams())
		}, ErrLoad},
		{"bad", func() (*Model, error) { return LoadModel(context.Background(), bad, DefaultModelParams()) }, ErrLoad},
		{"empty", func() (*Model, error) {
			return LoadModelBytes(context.Background(), "x", nil, DefaultModelParams())
		}, ErrLoad},
		{"device", func() (*Model, error) {
			return LoadModelBytes(context.Background(), "x", llamatap.DefaultModel,
				ModelParams{Devices: []string{"nowhere0"}})
		}, ErrDevice},
		{"interrupted", func() (*Model, error) {
			return LoadModelBytes(ended, "x", llamatap.DefaultModel, DefaultModelParams())
		}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, err := test.load()
			if m != nil {
				defer m.Close()
			}
			if test.want == nil { // the model is small: it may be loaded before the end is seen
				if err != nil && (!errors.Is(err, ErrInterrupted) || !errors.Is(err, cause)) {
					t.Errorf("%v is not the interruption with its cause", err)
				}
				return
			}
			if !errors.Is(err, test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line that wraps %q", err, test.want)
			}
			t.Log(err)
		})
	}
}

func TestContextErrors(t *testing.T) {
	p := DefaultContextParams()
	p.FlashAttention, p.TypeV = FlashAttentionOff, CacheQ8_0
	x, err := loadDefault(t).NewContext(p)
	if !errors.Is(err, ErrContext) || !strings.Contains(err.Error(), "V cache") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, %v; want llama.cpp's reason on one line", x, err)
	}
}

func TestDecodeErrors(t *testing.T) {
	m := loadDefault(t)
	x := newContext(t, m, func(p *ContextParams) { p.Size = 256 })
	if err := m.Close(); err == nil {
		t.Error("a model with an open context was closed")
	}
	if err := decode(t, x, 0, 99999); !errors.Is(err, ErrBatch) {
		t.Errorf("a token that does not exist: %v", err)
	}
	if _, err := x.Logits(7); !errors.Is(err, ErrNoLogits) {
		t.Errorf("logits that do not exist: %v", err)
	}
	full := make([]Token, 256)
	if err := decode(t, x, 0, full...); err != nil {
		t.Fatal(err)
	}
	if err := decode(t, x, 256, 1); !errors.Is(err, ErrNoSlot) {
		t.Errorf("full context: %v", err)
	}
	x.Interrupt()
	x.Memory().Clear(true)
	if err := decode(t, x, 0, full...); !errors.Is(err, ErrInterrupted) {
		t.Errorf("interrupted: %v", err)
	}
	x.Resume()
	x.Memory().Clear(true)
	if err := decode(t, x, 0, 1, 2, 3); err != nil {
		t.Errorf("resumed: %v", err)
	}
	x.Close()
	x.Close()
	if err := decode(t, x, 0, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestBatchLimits(t *testing.T) {
	if _, err := NewBatch(0, 1); !errors.Is(err, ErrBatch) {
		t.Errorf("batch of no tokens: %v", err)
	}
	b, err := NewBatch(1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Add(1, 0, true, 0, 1, 2); !errors.Is(err, ErrBatch) {
		t.Errorf("too many sequences: %v", err)
	}
	if err := b.Add(1, 0, true); !errors.Is(err, ErrBatch) {
		t.Errorf("no sequence: %v", err)
	}
	if err := b.Add(1, 0, true, 0); err != nil || b.Len() != 1 {
		t.Errorf("first token: %v", err)
	}
	if err := b.Add(1, 1, true, 0); !errors.Is(err, ErrBatch) {
		t.Errorf("too many tokens: %v", err)
	}
	b.Reset()
	if b.Len() != 0 {
		t.Error("Reset left tokens")
	}
	b.Close()
	b.Close()
	if err := b.Add(1, 0, true, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestMemory(t *testing.T) {
	x := newContext(t, loadDefault(t), func(p *ContextParams) { p.Sequences, p.Unified = 2, true })
	mem := x.Memory()
	if low, high := mem.Range(0); low != -1 || high != -1 {
		t.Errorf("empty: %d to %d", low, high)
	}
	if err := decode(t, x, 0, 1, 2, 3, 4, 5, 6); err != nil {
		t.Fatal(err)
	}
	mem.Copy(0, 1, AllPositions, AllPositions)
	if !mem.Remove(0, 4, AllPositions) {
		t.Error("cannot remove the end of a sequence")
	}
	if !mem.CanShift() {
		t.Fatal("cannot shift")
	}
	mem.Remove(0, 0, 2)
	mem.Shift(0, 2, AllPositions, -2)
	for seq, want := range []Pos{1, 5} {
		if _, high := mem.Range(Seq(seq)); high != want {
			t.Errorf("sequence %d ends at %d, want %d", seq, high, want)
		}
	}
	mem.Keep(1)
	if _, high := mem.Range(0); high != -1 {
		t.Errorf("sequence 0 was kept until %d", high)
	}
	mem.Clear(true)
	if _, high := mem.Range(1); high != -1 {
		t.Errorf("cleared, but sequence 1 ends at %d", high)
	}
}

func TestSampler(t *testing.T) {
	m := loadDefault(t)
	x := newContext(t, m, nil)
	if err := decode(t, x, 0, 2048, 329); err != nil {
		t.Fatal(err)
	}
	logits, err := x.Logits(-1)
	if err != nil {
		t.Fatal(err)
	}
	best := Token(0)
	for i, l := range logits {
		if l > logits[best] {
			best = Token(i)
		}
	}
	build := func(add func(*Sampler)) *Sampler {
		s := NewSampler(m.Vocab())
		t.Cleanup(s.Close)
		add(s)
		return s
	}
	one := func(add func(*Sampler)) Token {
		token, err := build(add).Sample(x, -1)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	if got := one((*Sampler).AddGreedy); got != best {
		t.Errorf("greedy chose %d, the likeliest is %d", got, best)
	}
	if got := one(func(s *Sampler) { s.AddTemperature(0, 0, 1); s.AddDist(3) }); got != best {
		t.Errorf("temperature 0 chose %d, the likeliest is %d", got, best)
	}
	inf := float32(math.Inf(-1))
	if got := one(func(s *Sampler) { s.AddLogitBias([]LogitBias{{best, inf}}); s.AddGreedy() }); got == best {
		t.Errorf("the forbidden token %d was chosen", got)
	}
	if got := one(func(s *Sampler) {
		s.AddPenalties(64, 1, 0, 1000)
		s.AddGreedy()
		s.Accept(best)
	}); got == best {
		t.Errorf("the penalised token %d was chosen", got)
	}
	if got := one(func(s *Sampler) { s.AddTopK(1); s.AddDist(3) }); got != best {
		t.Errorf("top-k 1 chose %d", got)
	}
	if got := one(func(s *Sampler) { s.AddTopP(0.0001, 1); s.AddDist(3) }); got != best {
		t.Errorf("top-p chose %d", got)
	}
	if got := one(func(s *Sampler) { s.AddMinP(1, 1); s.AddDist(3) }); got != best {
		t.Errorf("min-p chose %d", got)
	}
	s := build(func(s *Sampler) { s.AddTemperature(5, 0, 1); s.AddDist(42) })
	draw := func() (tokens []Token) {
		for range 8 {
			token, err := s.Sample(x, -1)
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, token)
		}
		return tokens
	}
	first := draw()
	s.Reset()
	if again := draw(); !slices.Equal(first, again) || s.Seed() != 42 {
		t.Errorf("seed %d gave %v, then %v", s.Seed(), first, again)
	}
	if _, err := build(func(s *Sampler) { s.AddTopK(3) }).Sample(x, -1); err == nil {
		t.Error("a chain without an end chose a token")
	}
	if _, err := s.Sample(x, 9); !errors.Is(err, ErrNoLogits) {
		t.Errorf("no such output: %v", err)
	}
}

func TestDevices(t *testing.T) {
	if err := Init(); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(Devices(), func(d Device) bool {
		return d.Kind == DeviceCPU && d.Name != "" &&
			d.TotalBytes > 0
	}) {
		t.Errorf("no CPU among %+v", Devices())
	}
	if err := AddRPC("127.0.0.1:1"); !errors.Is(err, ErrDevice) || strings.Contains(err.Error(), "\n") {
		t.Errorf("no server: %v", err)
	}
	install, err := Installed()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(install.LibDir, "libllama.so")); err != nil {
		t.Error(err)
	}
}

func TestModelProgress(t *testing.T) {
	p := DefaultModelParams()
	p.Progress = func(f float64) {
		if f < 0 || f > 1 {
			t.Errorf("progress %v", f)
		}
	}
	m, err := LoadModelBytes(context.Background(), "gopher", llamatap.DefaultModel, p)
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	m.Close()
}
