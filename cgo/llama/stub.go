//go:build !llama

package llama

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llamatap/llamatap/gguf"
)

// home is empty: this build does not move.
const home = ""

// errNoLlama is what every call that can fail returns in a build without llama.cpp.
var errNoLlama = fmt.Errorf("built without llama.cpp: %w: build with 'make build', which fetches it and sets the "+
	"build tag llama", errors.ErrUnsupported)

// Installed returns an error: this build has no llama.cpp.
func Installed() (Installation, error) { return Installation{}, errNoLlama }

// Version is empty: this build has no llama.cpp.
func Version() string { return "" }

// GGMLVersion is empty: this build has no llama.cpp.
func GGMLVersion() (version, commit string) { return "", "" }

// Init returns an error: this build has no llama.cpp.
func Init() error { return errNoLlama }

// SetLog does nothing in this build.
func SetLog(LogLevel) {}

// Devices is empty in this build.
func Devices() []Device { return nil }

// Backends is empty in this build.
func Backends() []string { return nil }

// AddRPC returns an error: this build has no llama.cpp.
func AddRPC(string) error { return errNoLlama }

// LoadBLAS returns an error: this build has no llama.cpp.
func LoadBLAS(int) error { return errNoLlama }

// ProductTime returns an error: this build has no llama.cpp.
func ProductTime(string, gguf.Type, int64, int64, int, time.Duration) (time.Duration, error) {
	return 0, errNoLlama
}

// Model cannot be made in this build.
type Model struct{ vocab Vocab }

// DefaultModelParams returns the zero value in this build.
func DefaultModelParams() ModelParams { return ModelParams{} }

// LoadModel returns an error: this build has no llama.cpp.
func LoadModel(context.Context, string, ModelParams) (*Model, error) { return nil, errNoLlama }

// LoadModelBytes returns an error: this build has no llama.cpp.
func LoadModelBytes(context.Context, string, []byte, ModelParams) (*Model, error) {
	return nil, errNoLlama
}

// Requantise returns an error: this build has no llama.cpp.
func Requantise([]byte, gguf.Type, gguf.Type, int64, int64) ([]byte, error) { return nil, errNoLlama }

// The methods of objects that this build cannot make. What they return is the zero value.

func (*Model) Close() error                               { return nil }
func (m *Model) Vocab() *Vocab                            { return &m.vocab }
func (*Model) Description() string                        { return "" }
func (*Model) Meta(string) (string, bool)                 { return "", false }
func (*Model) Size() uint64                               { return 0 }
func (*Model) Parameters() uint64                         { return 0 }
func (*Model) Layers() int                                { return 0 }
func (*Model) Width() int                                 { return 0 }
func (*Model) EmbeddingWidth() int                        { return 0 }
func (*Model) TrainedContext() int                        { return 0 }
func (*Model) HasEncoder() bool                           { return false }
func (*Model) Recurrent() bool                            { return false }
func (*Model) HasDecoder() bool                           { return false }
func (*Model) NewContext(ContextParams) (*Context, error) { return nil, errNoLlama }
func (*Model) LoadAdapter(string) (*Adapter, error)       { return nil, errNoLlama }

// Classes, ClassLabel and RerankTemplate are empty in this build.
func (*Model) Classes() int                   { return 0 }
func (*Model) ClassLabel(int) string          { return "" }
func (*Model) RerankTemplate() (string, bool) { return "", false }

// Separators is empty in this build.
func (*Vocab) Separators() string { return "" }

// Exists is false in this build.
func (Memory) Exists() bool { return false }

// ChatTemplate is empty in this build.
func (*Model) ChatTemplate() (string, bool) { return "", false }

// ApplyChatTemplate returns an error: this build has no llama.cpp.
func ApplyChatTemplate(string, []ChatMessage, bool) (string, error) { return "", errNoLlama }

// ChatTemplates is empty in this build.
func ChatTemplates() []string { return nil }

// Adapter cannot be had in this build.
type Adapter struct{}

// Close does nothing in this build.
func (*Adapter) Close() error { return nil }

// Vocab cannot be had in this build.
type Vocab struct{}

func (*Vocab) Tokens() int                                    { return 0 }
func (*Vocab) Tokenize(string, bool, bool) ([]Token, error)   { return nil, errNoLlama }
func (*Vocab) AppendPiece(dst []byte, _ Token, _ bool) []byte { return dst }
func (*Vocab) Begin() Token                                   { return NoToken }
func (*Vocab) End() Token                                     { return NoToken }
func (*Vocab) EndsGeneration(Token) bool                      { return false }
func (*Vocab) AddsBegin() bool                                { return false }
func (*Vocab) Suppressed() []Token                            { return nil }

// SlidingWindow is 0 in this build.
func (*Model) SlidingWindow() int { return 0 }

// CountChoices does nothing in this build.
func (*Sampler) CountChoices() {}

// Choices is empty in this build.
func (*Sampler) Choices() []Choices { return nil }

// ReplayChoices returns an error: this build has no llama.cpp.
func (*Sampler) ReplayChoices([]Choices) error { return errNoLlama }

// Batch cannot be made in this build.
type Batch struct{}

// NewBatch returns an error: this build has no llama.cpp.
func NewBatch(int, int) (*Batch, error) { return nil, errNoLlama }

func (*Batch) Add(Token, Pos, bool, ...Seq) error { return errNoLlama }
func (*Batch) Len() int                           { return 0 }
func (*Batch) Reset()                             {}
func (*Batch) Close()                             {}

// Context cannot be made in this build.
type Context struct{}

// DefaultContextParams returns the zero value in this build.
func DefaultContextParams() ContextParams { return ContextParams{} }

func (*Context) Close()              {}
func (*Context) Size() int           { return 0 }
func (*Context) SequenceSize() int   { return 0 }
func (*Context) Sequences() int      { return 0 }
func (*Context) Batch() int          { return 0 }
func (*Context) MicroBatch() int     { return 0 }
func (*Context) Decode(*Batch) error { return errNoLlama }
func (*Context) Generate(*Sampler, *Batch, *Generation, []Token, []int64) (int, error) {
	return 0, errNoLlama
}
func (*Context) DecodeEach(*Batch, []Token, []int64) (int, error) {
	return 0, errNoLlama
}
func (*Context) DecodeWatched(*Batch, []WatchSite) error {
	return errNoLlama
}
func (*Context) SetWeight(string, []byte) error             { return errNoLlama }
func (*Context) Plan(*Batch) error                          { return errNoLlama }
func (*Context) Graph() (*WatchGraph, error)                { return nil, errNoLlama }
func (*Context) Interrupt()                                 {}
func (*Context) Resume()                                    {}
func (*Context) Synchronize()                               {}
func (*Context) Logits(int) ([]float32, error)              { return nil, errNoLlama }
func (*Context) Pooling() Pooling                           { return PoolOfModel }
func (*Context) Embedding(int) ([]float32, error)           { return nil, errNoLlama }
func (*Context) SequenceEmbedding(Seq) ([]float32, error)   { return nil, errNoLlama }
func (*Context) PerfReset()                                 {}
func (*Context) Memory() Memory                             { return Memory{} }
func (*Context) SetAdapters([]ScaledAdapter) error          { return errNoLlama }
func (*Context) SaveState(string, []Token) error            { return errNoLlama }
func (*Context) LoadState(string) ([]Token, error)          { return nil, errNoLlama }
func (*Context) SaveSequence(string, Seq, []Token) error    { return errNoLlama }
func (*Context) LoadSequence(string, Seq) ([]Token, error)  { return nil, errNoLlama }
func (*Context) SetControlVector([]float32, int, int) error { return errNoLlama }

// Memory cannot be had in this build.
type Memory struct{}

func (Memory) Clear(bool)                {}
func (Memory) Remove(Seq, Pos, Pos) bool { return false }
func (Memory) Copy(_, _ Seq, _, _ Pos)   {}
func (Memory) Keep(Seq)                  {}
func (Memory) Shift(Seq, Pos, Pos, Pos)  {}
func (Memory) Divide(Seq, Pos, Pos, int) {}
func (Memory) Range(Seq) (low, high Pos) { return -1, -1 }
func (Memory) CanShift() bool            { return false }

// Sampler does nothing in this build.
type Sampler struct{}

// NewSampler returns a sampler that chooses nothing.
func NewSampler(*Vocab) *Sampler { return &Sampler{} }

func (*Sampler) Close()                               {}
func (*Sampler) SetGrammar(string, string) error      { return errNoLlama }
func (*Sampler) AddLogitBias([]LogitBias)             {}
func (*Sampler) AddPenalties(_ int, _, _, _ float32)  {}
func (*Sampler) AddDry(Dry)                           {}
func (*Sampler) AddTopNSigma(float32)                 {}
func (*Sampler) AddTopK(int)                          {}
func (*Sampler) AddTypical(float32, int)              {}
func (*Sampler) AddTopP(float32, int)                 {}
func (*Sampler) AddMinP(float32, int)                 {}
func (*Sampler) AddXTC(_, _ float32, _ int, _ uint32) {}
func (*Sampler) AddTemperature(_, _, _ float32)       {}
func (*Sampler) AddInfill()                           {}
func (*Sampler) AddDist(uint32)                       {}
func (*Sampler) AddGreedy()                           {}
func (*Sampler) AddAdaptive(_, _ float32, _ uint32)   {}
func (*Sampler) AddMirostat(_, _ float32, _ uint32)   {}
func (*Sampler) AddMirostat2(_, _ float32, _ uint32)  {}
func (*Sampler) Sample(*Context, int) (Token, error)  { return NoToken, errNoLlama }
func (*Sampler) Accept(Token) error                   { return errNoLlama }
func (*Sampler) AcceptPrompt(Token) error             { return errNoLlama }
func (*Sampler) Reset()                               {}
func (*Sampler) Seed() uint32                         { return RandomSeed }
