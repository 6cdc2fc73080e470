package llama

import (
	"fmt"
	"strings"
	"time"
)

// Token is the number of a token in a model's vocabulary.
type Token int32

// NoToken is the token that a vocabulary does not have.
const NoToken Token = -1

// Pos is a position in a sequence, counted from 0.
type Pos int32

// Seq is the number of a sequence in a context.
type Seq int32

// RandomSeed, as a seed, takes one from the system.
const RandomSeed uint32 = 0xFFFFFFFF

// AllPositions, as from or to of a range, leaves that side of it open; AllSequences means every sequence.
const (
	AllPositions Pos = -1
	AllSequences Seq = -1
)

// Installation says where this build's llama.cpp is. Fields are empty where there is nothing: no loader of its own
// where the machine's is used, no backends folder where backends are built in.
type Installation struct {
	LibDir   string // folder of libllama.so
	LibPath  string // library path of programs that are linked with it
	Backends string // folder of the loadable ggml backends
	Bin      string // folder of llama.cpp's own programs
	Loader   string // dynamic loader that they need
}

// LoadMode says how a model's weights come into memory.
type LoadMode int32

// Load modes, numbered as llama.h does.
const (
	LoadAuto    LoadMode = iota - 1 // mapped, unless a device cannot
	LoadRead                        // read
	LoadMap                         // mapped
	LoadLock                        // read and locked in RAM
	LoadMapLock                     // mapped and locked in RAM
	LoadDirect                      // read past the page cache
)

var loadModes = []string{"auto", "none", "mmap", "mlock", "mmap+mlock", "dio"}

// ParseLoadMode reads a load mode as llama.cpp's --load-mode spells it.
func ParseLoadMode(s string) (LoadMode, error) {
	for i, name := range loadModes {
		if s == name {
			return LoadMode(i - 1), nil
		}
	}
	return 0, fmt.Errorf("unknown load mode %q: take %s", s, strings.Join(loadModes, ", "))
}

// FlashAttention says whether attention is computed as one fused operation.
type FlashAttention int32

// Flash attention settings, numbered as llama.h does.
const (
	FlashAttentionAuto FlashAttention = iota - 1
	FlashAttentionOff
	FlashAttentionOn
)

// ParseFlashAttention reads "on", "off" or "auto".
func ParseFlashAttention(s string) (FlashAttention, error) {
	switch s {
	case "auto":
		return FlashAttentionAuto, nil
	case "off":
		return FlashAttentionOff, nil
	case "on":
		return FlashAttentionOn, nil
	}
	return 0, fmt.Errorf("unknown flash attention setting %q: take on, off or auto", s)
}

// CacheType is the type of the values in a KV cache.
type CacheType int32

// Types of KV caches, numbered as ggml.h's ggml_type.
const (
	CacheF32   CacheType = 0
	CacheF16   CacheType = 1
	CacheQ4_0  CacheType = 2
	CacheQ4_1  CacheType = 3
	CacheQ5_0  CacheType = 6
	CacheQ5_1  CacheType = 7
	CacheQ8_0  CacheType = 8
	CacheIQ4NL CacheType = 20
	CacheBF16  CacheType = 30
)

var cacheTypes = map[string]CacheType{
	"f32": CacheF32, "f16": CacheF16, "bf16": CacheBF16, "q8_0": CacheQ8_0, "q4_0": CacheQ4_0, "q4_1": CacheQ4_1,
	"iq4_nl": CacheIQ4NL, "q5_0": CacheQ5_0, "q5_1": CacheQ5_1,
}

// ParseCacheType reads a type as llama.cpp's --cache-type-k spells it.
func ParseCacheType(s string) (CacheType, error) {
	if t, ok := cacheTypes[s]; ok {
		return t, nil
	}
	return 0, fmt.Errorf("unknown cache type %q: take f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0 or q5_1", s)
}

// RopeScaling is how rotary positions are stretched beyond the length that a model was trained for.
type RopeScaling int32

// Ways to scale rotary positions, numbered as llama.h does.
const (
	RopeOfModel RopeScaling = iota - 1 // as the model says
	RopeUnscaled
	RopeLinear
	RopeYarn
)

// ParseRopeScaling reads a way as llama.cpp's --rope-scaling spells it; "" is RopeOfModel.
func ParseRopeScaling(s string) (RopeScaling, error) {
	switch s {
	case "":
		return RopeOfModel, nil
	case "none":
		return RopeUnscaled, nil
	case "linear":
		return RopeLinear, nil
	case "yarn":
		return RopeYarn, nil
	}
	return 0, fmt.Errorf("unknown RoPE scaling %q: take none, linear or yarn", s)
}

// Rope is how rotary positions are computed. In each number the default, 0 or a negative one, is what the model says.
type Rope struct {
	Scaling         RopeScaling
	FreqBase        float32
	FreqScale       float32
	YarnOrigContext int     // tokens that the model was trained for
	YarnExtFactor   float32 // share of extrapolation; 0: all interpolated
	YarnAttnFactor  float32
	YarnBetaFast    float32
	YarnBetaSlow    float32
}

// ModelParams says how a model is loaded. DefaultModelParams gives llama.cpp's defaults.
type ModelParams struct {
	// GPULayers is how many layers devices other than the CPU hold; negative: all.
	GPULayers int
	// Load is how weights come into memory.
	Load LoadMode
	// Devices are the names of the devices to use; nil: all that there are; empty, not nil: none but the CPU.
	Devices []string
	// Plain keeps weights as they lie in the file: the CPU does not repack them, so that SetWeight can change them.
	Plain bool
	// CheckTensors has llama.cpp look for invalid numbers in the weights.
	CheckTensors bool
	// Progress, if not nil, is called a few times per second while the model loads, with the fraction that is done,
	// on a goroutine of its own. No call comes after LoadModel has returned.
	Progress func(fraction float64)
}

// Pooling is how one embedding is made of the tokens of a sequence.
type Pooling int32

// Ways to pool, numbered as llama.h does.
const (
	PoolOfModel Pooling = iota - 1 // as the model says
	PoolNone                       // one per token
	PoolMean
	PoolFirst // that of the first token, which llama.cpp calls cls
	PoolLast
	PoolRank // a score
)

// ParsePooling reads a way as llama.cpp's --pooling spells it; "" is PoolOfModel.
func ParsePooling(s string) (Pooling, error) {
	for i, name := range []string{"", "none", "mean", "cls", "last", "rank"} {
		if s == name {
			return Pooling(i - 1), nil
		}
	}
	return 0, fmt.Errorf("unknown pooling %q: take none, mean, cls, last or rank", s)
}

// Attention says which tokens a token looks at.
type Attention int32

// Kinds of attention, numbered as llama.h does.
const (
	AttentionOfModel   Attention = iota - 1 // as the model says
	AttentionCausal                         // those before it
	AttentionNonCausal                      // all
)

// ContextParams says how a context is made. DefaultContextParams gives llama.cpp's defaults.
type ContextParams struct {
	// Size is the length of the context in tokens; 0: what the model was trained for.
	Size int
	// Batch and MicroBatch are the most tokens per Decode and per graph.
	Batch, MicroBatch int
	// Sequences is the most sequences that are decoded at a time.
	Sequences int
	// Unified has all sequences share one KV buffer; otherwise each has its own part of it.
	Unified bool
	// Threads decode single tokens, BatchThreads decode batches; at least 1.
	Threads, BatchThreads int
	// FlashAttention says whether attention is one fused operation.
	FlashAttention FlashAttention
	// TypeK and TypeV are the types of the KV cache; a quantised V cache needs flash attention.
	TypeK, TypeV CacheType
	// SlidingFull keeps every position in the cache of a layer with sliding-window attention, not only its window.
	SlidingFull bool
	// NoPerf leaves llama.cpp's own clocks off.
	NoPerf bool
	// Rope is how rotary positions are computed.
	Rope Rope
	// Embeddings has every batch compute embeddings; Pooling and Attention matter for them alone.
	Embeddings bool
	Pooling    Pooling
	Attention  Attention
	// Watch has the context ask for each node of its graphs, for DecodeWatched and Graph.
	Watch bool
	// Sampler, if not nil, is applied in the graphs of sequence 0, as far as the devices can. It must outlive the
	// context, and be complete before.
	Sampler *Sampler
}

// LogitBias is added to a token's logit before anything else looks at it.
type LogitBias struct {
	Token Token
	Bias  float32
}

// ChatMessage is one turn of a conversation.
type ChatMessage struct {
	Role, Content string
}

// ScaledAdapter is an adapter with the factor that its effect is multiplied with.
type ScaledAdapter struct {
	Adapter *Adapter
	Scale   float32
}

// Dry is how repetitions of earlier text are made less likely.
type Dry struct {
	Multiplier    float32  // 0: not at all
	Base          float32  // by how much the penalty grows with each token of a repetition; at least 1
	AllowedLength int      // tokens that may be repeated freely
	LastN         int      // tokens that are looked back at; 0: none
	Breakers      []string // texts that end a repetition
}

// Generation is how Context.Generate goes on, and where it came to.
type Generation struct {
	Pending  Token         // chosen and not decoded yet; NoToken: none, the last batch left logits
	Seq      Seq           // sequence
	Pos      Pos           // where the next token goes
	End      Pos           // size of the context: a token whose successor would have no room is not decoded
	Pause    []bool        // tokens to come back with, by token; nil: none
	Patience time.Duration // after which no further token is decoded; 0: after each
	Decoded  int           // tokens that the last call decoded, its Pending among them
}

// DeviceKind is what a device is.
type DeviceKind int32

// Kinds of devices, numbered as ggml-backend.h does.
const (
	DeviceCPU DeviceKind = iota
	DeviceGPU
	DeviceIGPU
	DeviceAccel
	DeviceMeta
)

// Device is one place that can compute.
type Device struct {
	Name, Description string
	Kind              DeviceKind
	FreeBytes         uint64
	TotalBytes        uint64
}

// LogLevel is how much of llama.cpp's log reaches stderr.
type LogLevel int32

// Log levels, numbered as ggml.h does.
const (
	LogDebug LogLevel = 1
	LogInfo  LogLevel = 2
	LogWarn  LogLevel = 3
	LogError LogLevel = 4
	LogNone  LogLevel = 6
)

// Choices are how often a sampler was applied to one token, and to more. They report how many random numbers AddDist
// and AddXTC have taken, whether they take one for a single token or not.
type Choices struct {
	One  uint64 `json:"one"`
	More uint64 `json:"more"`
}
