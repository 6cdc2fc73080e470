package ggmlhooks

// ServedKind is what a server did. The numbers are shared with cgo/tap.
type ServedKind uint32

// The kinds.
const (
	// ServedChoice: a sampler chose Token from row Row of its context's last call, and accepted it at MonoNS. The
	// program began at BegunNS; GrammarNS of that time went to other samplers than the chain, such as a grammar. Value
	// is 1 where the token ends generation, and Key the sampler.
	ServedChoice ServedKind = iota
	// ServedAsk: thread Row tokenized a prompt of Value tokens at BegunNS, or received it as token ids. Key is the
	// [PromptHash] of them, and MonoNS when the first bytes of the HTTP request were received. Token is 1 where it says
	// cache_prompt: false; with no tokens that holds for the prompts of the same request before.
	ServedAsk
	// ServedAnswer: thread Row sends why Key generations ended: Value, 0 where they differ. Line
	// is the answer's object of timings, then its model and id as JSON members, and Token its slot, -1 where it names
	// none.
	ServedAnswer
	// ServedLine: thread Row logs Line.
	ServedLine
	// ServedSaved: the state of sequence Row was copied to address Key, Value bytes. ServedRestored: it was copied
	// back.
	ServedSaved
	ServedRestored
	// ServedAdapters: what is computed from now on uses the LoRA adapters that Key stands for, 0: none.
	ServedAdapters
	// ServedHTTP: the HTTP request that thread Row receives since MonoNS says of itself what Line has: lines "name
	// value" of its path, its trace context and the settings in its JSON body.
	ServedHTTP
	// ServedEmbedded: the program read the embedding of row Row of its context's last call, or of sequence Token; the
	// other is -1.
	ServedEmbedded
)

// Why generation ended, as Served.Value of a [ServedAnswer].
const (
	ServedStop   = 1 + iota // the model ended it, or a stop string
	ServedLength            // it reached its limit
	ServedError
	ServedCompleted // one of the first two: /responses does not distinguish them
)

// Served is something that a server did for a request.
type Served struct {
	Kind                       ServedKind
	Ctx                        uint32
	MonoNS, BegunNS, GrammarNS int64
	Key                        uint64
	Row, Token                 int32
	Value                      uint32
	Line                       string // without text of prompts or answers
}

// PromptHash is FNV-1a of 64 bits over token ids, as the tap makes it of prompts that arrive.
func PromptHash(tokens []int32) uint64 {
	h := uint64(14695981039346656037)
	for _, t := range tokens {
		h = (h ^ uint64(uint32(t))) * 1099511628211
	}
	return h
}
