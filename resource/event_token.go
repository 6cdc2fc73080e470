package resource

// InputTokens is the prompt tokens of one execution, one entry per token in each list.
type InputTokens struct {
	Header
	Exec       uint64   `json:"exec"`
	TokenFirst int64    `json:"token_first"`
	TokenIDs   []int32  `json:"token_ids"`
	TokenTexts []string `json:"token_texts,omitempty"`
	Positions  []int32  `json:"positions"`
	SeqIDs     []int32  `json:"seq_ids"`
}

// OutputToken is a generated token, reported when it is fed back into the model: the last token of a run never is.
type OutputToken struct {
	Header
	Exec       uint64  `json:"exec"`
	TokenIndex int64   `json:"token_index"`
	TokenID    int32   `json:"token_id"`
	TokenText  *string `json:"token_text,omitempty"`
	Pos        int32   `json:"pos"`
	SeqID      *int32  `json:"seq_id,omitempty"`
	// LatencyNS is the time since the sequence's token before, from graph entry to graph entry.
	LatencyNS *int64 `json:"latency_ns,omitempty"`
	// First is true for the first generated token: LatencyNS then starts at the prompt's last graph.
	First bool `json:"first,omitempty"`
}

// Routing is the experts that a layer chose for a token, in the layer's order, and how it weighs them.
type Routing struct {
	Header
	Exec       uint64    `json:"exec"`
	LayerID    int       `json:"layer_id"`
	TokenIndex int64     `json:"token_index"`
	TokenID    int32     `json:"token_id"`
	Pos        int32     `json:"pos"`
	SeqID      *int32    `json:"seq_id,omitempty"`
	Experts    []int32   `json:"experts"`
	Weights    []float32 `json:"weights,omitempty"`
}

// Sampling is a choice of a sampler chain.
type Sampling struct {
	Header
	Sampling Choice `json:"sampling"`
}

// Choice is what a sampler chose from: the candidates of the highest logits after the chain, highest first.
type Choice struct {
	SelectedToken     int32     `json:"selected_token"`
	SelectedTokenText *string   `json:"selected_token_text,omitempty"`
	SelectedProb      *float32  `json:"selected_prob,omitempty"`
	TopTokens         []int32   `json:"top_tokens"`
	LogitsSample      []float32 `json:"logits_sample"`
	TopProbs          []float32 `json:"top_probs,omitempty"`
	TopTokenTexts     []string  `json:"top_token_texts,omitempty"`
	CandidatesBefore  int       `json:"candidates_before"`
	CandidatesAfter   int       `json:"candidates_after"`
}
