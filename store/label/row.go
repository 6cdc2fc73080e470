package label

// NoLayer is the layer of a node that belongs to none: input embedding, final norm, logits.
const NoLayer = -1

// RowKind is what the rows of a node correspond to.
type RowKind uint8

// The row kinds. The numbers are shared with cgo/tap and stored in index files.
const (
	RowsNone    RowKind = iota // no dimension of the node runs over tokens
	RowsTokens                 // one row per token of the micro-batch
	RowsOutputs                // one row per output token (after the last layer's GET_ROWS by inp_out_ids)
)

var rowKindNames = [...]string{"none", "tokens", "outputs"}

// String returns the row kind's name as written in files.
func (k RowKind) String() string { return rowKindNames[k] }

// MarshalText writes the row kind's name.
func (k RowKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Row is one token of a micro-batch.
type Row struct {
	Index  int64 // number in the run, prompt included, from 0
	Token  int32 // vocabulary id, -1 for an embedding input
	Pos    int32
	Seqs   []int32 // sequences; empty when the program's batch could not be seen
	Phase  Phase
	Output bool // logits or embeddings were asked for
	// Request is the request of its first sequence that it belongs to, counted from 0 per context and sequence;
	// RequestUnknown.
	Request int32
}

// RequestCause is the evidence that a request begins. The numbers are stored in index files; never renumber them.
type RequestCause uint8

// The causes.
const (
	RequestFirst   RequestCause = iota // the sequence's first rows
	RequestSampler                     // the program set the sequence's sampler: llama-server does, once per request
	RequestMemory                      // a prompt, after cells of the sequence were removed, replaced or restored
	RequestPrompt                      // a prompt, after generated tokens
	RequestNone    RequestCause = 255  // none begins
)

var requestCauses = [...]string{"first", "sampler", "memory", "prompt"}

// String returns the cause's name.
func (c RequestCause) String() string {
	if int(c) < len(requestCauses) {
		return requestCauses[c]
	}
	return "none"
}

// RequestUnknown is the request of a row whose sequence is not known.
const RequestUnknown = -1

// RequestBegin marks the point from which a sequence's rows belong to a new request.
type RequestBegin struct {
	Ctx    uint32
	Seq    int32
	Number int32 // from 0, of this sequence in this context
	Cause  RequestCause
}
