package llama

import (
	"context"
	"testing"
)

// What both builds, with and without llama.cpp, offer. A method that one of them lacks does not compile.
var (
	_ interface {
		Close() error
		Vocab() *Vocab
		Description() string
		Meta(string) (string, bool)
		Size() uint64
		Parameters() uint64
		Layers() int
		Width() int
		TrainedContext() int
		HasEncoder() bool
		HasDecoder() bool
		NewContext(ContextParams) (*Context, error)
		LoadAdapter(string) (*Adapter, error)
	} = (*Model)(nil)
	_ interface {
		Tokens() int
		Tokenize(string, bool, bool) ([]Token, error)
		AppendPiece([]byte, Token, bool) []byte
		Begin() Token
		End() Token
		EndsGeneration(Token) bool
		AddsBegin() bool
		Suppressed() []Token
	} = (*Vocab)(nil)
	_ interface {
		Add(Token, Pos, bool, ...Seq) error
		Len() int
		Reset()
		Close()
	} = (*Batch)(nil)
	_ interface {
		Close()
		Size() int
		Batch() int
		MicroBatch() int
		Decode(*Batch) error
		Interrupt()
		Resume()
		Synchronize()
		Logits(int) ([]float32, error)
		PerfReset()
		Memory() Memory
		SetAdapters([]ScaledAdapter) error
		SetControlVector([]float32, int, int) error
		SaveState(string, []Token) error
		LoadState(string) ([]Token, error)
		SaveSequence(string, Seq, []Token) error
		LoadSequence(string, Seq) ([]Token, error)
	} = (*Context)(nil)
	_ interface{ Close() error } = (*Adapter)(nil)
	_ interface {
		Clear(bool)
		Remove(Seq, Pos, Pos) bool
		Copy(Seq, Seq, Pos, Pos)
		Keep(Seq)
		Shift(Seq, Pos, Pos, Pos)
		Divide(Seq, Pos, Pos, int)
		Range(Seq) (Pos, Pos)
		CanShift() bool
	} = Memory{}
	_ interface {
		Close()
		SetGrammar(string, string) error
		AddLogitBias([]LogitBias)
		AddPenalties(int, float32, float32, float32)
		AddDry(Dry)
		AddTopNSigma(float32)
		AddTopK(int)
		AddTypical(float32, int)
		AddTopP(float32, int)
		AddMinP(float32, int)
		AddXTC(float32, float32, int, uint32)
		AddTemperature(float32, float32, float32)
		AddInfill()
		AddDist(uint32)
		AddGreedy()
		AddAdaptive(float32, float32, uint32)
		AddMirostat(float32, float32, uint32)
		AddMirostat2(float32, float32, uint32)
		Sample(*Context, int) (Token, error)
		Accept(Token) error
		AcceptPrompt(Token) error
		Reset()
		Seed() uint32
	} = (*Sampler)(nil)
	_ func() (Installation, error)                                       = Installed
	_ func() string                                                      = Version
	_ func() error                                                       = Init
	_ func(LogLevel)                                                     = SetLog
	_ func() []Device                                                    = Devices
	_ func(string) error                                                 = AddRPC
	_ func(int) error                                                    = LoadBLAS
	_ func(*Vocab) *Sampler                                              = NewSampler
	_ func(int, int) (*Batch, error)                                     = NewBatch
	_ func() ModelParams                                                 = DefaultModelParams
	_ func() ContextParams                                               = DefaultContextParams
	_ func(context.Context, string, ModelParams) (*Model, error)         = LoadModel
	_ func(context.Context, string, []byte, ModelParams) (*Model, error) = LoadModelBytes
)

func second[T any](_ T, err error) error { return err }

func TestParse(t *testing.T) {
	for name, mode := range map[string]LoadMode{"auto": LoadAuto, "none": LoadRead, "mmap": LoadMap, "mlock": LoadLock,
		"mmap+mlock": LoadMapLock, "dio": LoadDirect} {
		if got, err := ParseLoadMode(name); err != nil || got != mode {
			t.Errorf("ParseLoadMode(%q) = %d, %v; want %d", name, got, err, mode)
		}
	}
	for name, want := range map[string]FlashAttention{"auto": -1, "off": 0, "on": 1} {
		if got, err := ParseFlashAttention(name); err != nil || got != want {
			t.Errorf("ParseFlashAttention(%q) = %d, %v; want %d", name, got, err, want)
		}
	}
	for name, want := range map[string]CacheType{"f32": 0, "f16": 1, "q8_0": 8, "iq4_nl": 20, "bf16": 30} {
		if got, err := ParseCacheType(name); err != nil || got != want {
			t.Errorf("ParseCacheType(%q) = %d, %v; want %d", name, got, err, want)
		}
	}
	for name, want := range map[string]RopeScaling{"": -1, "none": 0, "linear": 1, "yarn": 2} {
		if got, err := ParseRopeScaling(name); err != nil || got != want {
			t.Errorf("ParseRopeScaling(%q) = %d, %v; want %d", name, got, err, want)
		}
	}
	for _, parse := range []func() error{
		func() error { return second(ParseRopeScaling("x")) },
		func() error { return second(ParseLoadMode("x")) },
		func() error { return second(ParseFlashAttention("x")) },
		func() error { return second(ParseCacheType("q2_k")) },
	} {
		if parse() == nil {
			t.Error("an unknown word was accepted")
		}
	}
}
