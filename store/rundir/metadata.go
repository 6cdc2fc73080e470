package rundir

import (
	"encoding/json"
	"fmt"
	"time"
)

// MetadataVersion is the version of the metadata that this package writes.
const MetadataVersion = 1

// Metadata is metadata.json: what ran, where, how, and what it cost. A field that is not known is absent, never zero;
// therefore figures that may truly be zero are pointers.
type Metadata struct {
	Version  int       `json:"version"`
	Llamatap string    `json:"llamatap,omitempty"` // version of the program
	RunID    string    `json:"run_id,omitempty"`
	Created  time.Time `json:"created"`
	Ended    time.Time `json:"ended,omitzero"`
	// what sealed the run: "collector", or the command that did it afterwards
	SealedBy string   `json:"sealed_by,omitempty"`
	Command  []string `json:"command,omitempty"`

	Model    Model     `json:"model,omitzero"` // the first context's
	Contexts []Context `json:"contexts,omitempty"`
	Llama    Llama     `json:"llama,omitzero"`
	Host     Host      `json:"host,omitzero"`
	Config   any       `json:"config,omitempty"` // echo of what was asked for
	Clock    Clock     `json:"clock,omitzero"`

	Phases  map[string]PhaseUse `json:"phases,omitempty"`
	Tokens  *Tokens             `json:"tokens,omitempty"`
	Account *Account            `json:"account,omitempty"`
	Losses  []Loss              `json:"losses"` // of the account; empty, never null, when nothing was lost
	Lossy   bool                `json:"lossy"`
	Tap     *Tap                `json:"tap,omitempty"`
	Streams []Stream            `json:"streams,omitempty"`
	Exit    *Exit               `json:"exit,omitempty"`
	Changes []Change            `json:"changes,omitempty"` // commands that came while it ran
	// Steering are the vectors that were added to the residual stream, one after the other; absent: the run was not
	// armed.
	Steering []Steering `json:"steering,omitempty"`

	Resumed  *Resumed  `json:"resumed,omitempty"`  // present in a resumed run
	Stopped  *Stopped  `json:"stopped,omitempty"`  // recording ended before the program did
	Repaired []Repair  `json:"repaired,omitempty"` // what 'llamatap verify --repair' did, each time
	Segment  *Segment  `json:"segment,omitempty"`  // of a segment: which of the run's it is
	Segments []Segment `json:"segments,omitempty"` // of a run in segments: those that are there
	Rotated  *Rotated  `json:"rotated,omitempty"`  // what a run that rotates gave back
	Moved    *Moved    `json:"moved,omitempty"`    // what left the disk of the recording for object storage

	Extra map[string]json.RawMessage `json:"extra,omitempty"` // of recorders that add their own
}

// Setting is a setting that a run was recorded with.
type Setting struct {
	Value  any
	Source string // default, preset, file, environment or flag
}

// String is the value of the setting; "" where it is not known.
func (s Setting) String() string {
	if s.Value == nil {
		return ""
	}
	return fmt.Sprint(s.Value)
}

// asked is what readers take from Config.
type asked struct {
	Settings  map[string]Setting
	Recorders []string
}

func (m *Metadata) asked() (a asked) {
	if text, err := json.Marshal(m.Config); err != nil || json.Unmarshal(text, &a) != nil {
		return asked{}
	}
	return a
}

// Settings returns the settings that the run was recorded with, by key; nil where they are not known.
func (m *Metadata) Settings() map[string]Setting { return m.asked().Settings }

// Recorders returns the recorders that were asked for; nil where they are not known.
func (m *Metadata) Recorders() []string { return m.asked().Recorders }

// Resumed describes the resume: times and costs are those since.
type Resumed struct {
	At         time.Time `json:"at"`
	Count      int       `json:"count"`       // how often
	Packets    uint64    `json:"packets"`     // that were there already
	CutPackets uint64    `json:"cut_packets"` // that stood after the checkpoint, and were recorded again
	// NotComputed are the tokens that were not computed again: the program began after them.
	NotComputed int64 `json:"tokens_not_computed,omitempty"`
}

// Model is the model of a run.
type Model struct {
	Path      string `json:"path,omitempty"`
	Name      string `json:"name,omitempty"`
	ID        string `json:"id,omitempty"` // path-safe; the directory's name
	Arch      string `json:"arch,omitempty"`
	FileType  string `json:"file_type,omitempty"`
	SizeBytes int64  `json:"size_bytes,omitempty"`
	SHA256    string `json:"sha256,omitempty"`
	NParams   uint64 `json:"n_params,omitempty"`
	NLayer    int    `json:"n_layer,omitempty"`
	NEmbd     int    `json:"n_embd,omitempty"`
	NHead     int    `json:"n_head,omitempty"`
	NHeadKV   int    `json:"n_head_kv,omitempty"`
	NVocab    int    `json:"n_vocab,omitempty"`
}

// Context is one llama_context of the run.
type Context struct {
	Ctx       uint32 `json:"ctx"`
	Model     Model  `json:"model,omitzero"`
	NCtx      uint32 `json:"n_ctx,omitempty"`
	NBatch    uint32 `json:"n_batch,omitempty"`
	NUBatch   uint32 `json:"n_ubatch,omitempty"`
	NSeqMax   uint32 `json:"n_seq_max,omitempty"`
	FlashAttn string `json:"flash_attn,omitempty"` // on, off or auto, as asked
	Type      string `json:"type,omitempty"`       // generation, embedding, recurrent, hybrid …
}

// Llama is the llama.cpp that ran.
type Llama struct {
	Version  string   `json:"version,omitempty"`
	GGML     string   `json:"ggml,omitempty"`
	Prefix   string   `json:"prefix,omitempty"`
	Backends []string `json:"backends,omitempty"`
}

// Host is the machine of the run.
type Host struct {
	OS          string `json:"os,omitempty"`
	Kernel      string `json:"kernel,omitempty"`
	CPU         string `json:"cpu,omitempty"`
	Cores       int    `json:"cores,omitempty"`
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
}

// Clock is one reading of both clocks at the start of the run; it converts one into the other.
type Clock struct {
	UnixNS int64 `json:"unix_ns"`
	MonoNS int64 `json:"mono_ns"`
}

// PhaseUse is what one phase of the run took.
type PhaseUse struct {
	Graphs int64 `json:"graphs"`
	Tokens int64 `json:"tokens"`
	NS     int64 `json:"ns"` // time in graphs, from when ggml gets one to its end
}

// Tokens counts token rows. The sum of all is what graphs computed; one that failed computed none.
type Tokens struct {
	Prompt    int64 `json:"prompt"`
	Generated int64 `json:"generated"` // and decoded: a request's last token is not
	// Drafts are rows of a draft model, of its prompts too. Rejected are rows of the model that were drafts and taken
	// back; a recurrent memory, which cannot be cut, also takes back accepted ones, and they are computed again.
	Drafts   int64 `json:"drafts,omitempty"`
	Rejected int64 `json:"rejected,omitempty"`
	Setup    int64 `json:"setup"` // computed and thrown away
	// Requests counts the requests of all sequences of all contexts; absent where no sequence is known.
	Requests int64 `json:"requests,omitempty"`
}

// Computed is how many rows graphs computed.
func (t *Tokens) Computed() int64 { return t.Prompt + t.Generated + t.Drafts + t.Rejected + t.Setup }

// Loss is a cause for which something was not recorded, and how much.
type Loss struct {
	Cause   string `json:"cause"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Tap is what the tap itself cost on the model's threads, all measured there, over the life of the process:
// warm-ups are in it.
type Tap struct {
	OwnNS      *int64  `json:"own_ns,omitempty"`      // all of the following but waiting
	HookNS     *int64  `json:"hook_ns,omitempty"`     // entries of graphs
	DescribeNS *int64  `json:"describe_ns,omitempty"` // of these, describing new graphs
	CallNS     *int64  `json:"call_ns,omitempty"`     // of these, calls of llama.h
	Graphs     *uint64 `json:"graphs,omitempty"`      // that were described
	// of these, reported as what differs from the graph before
	Rebuilt    *uint64 `json:"rebuilt,omitempty"`
	RebuiltNS  *int64  `json:"rebuilt_ns,omitempty"` // of describe_ns, for those
	Executions *uint64 `json:"executions,omitempty"` // of graphs
	AskNS      *int64  `json:"ask_ns,omitempty"`     // deciding about nodes
	CopyNS     *int64  `json:"copy_ns,omitempty"`    // copying tensors
	WaitNS     *int64  `json:"wait_ns,omitempty"`    // waiting for a free slot
	NodesAsked *uint64 `json:"nodes_asked,omitempty"`
	Copies     *uint64 `json:"copies,omitempty"`
	CopyBytes  *uint64 `json:"copy_bytes,omitempty"`
	// of the memory that tensors are copied to: pinned by the driver of a GPU, or that driver's error where it refused
	PinnedBytes uint64 `json:"pinned_bytes,omitempty"`
	PinError    uint64 `json:"pin_error,omitempty"`
	// weakest tag of these figures: measured, computed or estimated
	Source  string            `json:"source,omitempty"`
	Sources map[string]string `json:"sources,omitempty"` // figures whose tag differs
}

// Stream is what one stream file holds.
type Stream struct {
	Name        string `json:"name"`
	Packets     uint64 `json:"packets"`
	BytesSource uint64 `json:"bytes_source"`
	BytesRaw    uint64 `json:"bytes_raw"`
	BytesStored uint64 `json:"bytes_stored"`
	Saturated   uint64 `json:"saturated"`
	Underflow   uint64 `json:"underflow"`
	Codec       string `json:"codec"`
	DType       string `json:"dtype"`
	// With a codec that bounds the error of a row: the bound, its metric, and the largest errors made.
	Error       *float64 `json:"error_bound,omitempty"`
	ErrorMetric string   `json:"error_metric,omitempty"`
	MaxAbs      *float32 `json:"error_maxabs,omitempty"`
	NRMSE       *float32 `json:"error_nrmse,omitempty"`
}

// Exit is how the model's process ended.
type Exit struct {
	Status int    `json:"status"`
	Signal string `json:"signal,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Stopped says why recording ended before the program did.
type Stopped struct {
	Cause string    `json:"cause"` // as in Losses
	At    time.Time `json:"at"`
	Error string    `json:"error,omitempty"` // what failed, where something did
	// LastToken is the highest token_index that was recorded; absent where none was.
	LastToken *int64 `json:"last_token,omitempty"`
	// GraphsAfter counts the graphs that the program computed since of which nothing is known. Where the tap went
	// on counting it is 0, and losses hold what was selected of them.
	GraphsAfter uint64 `json:"graphs_after"`
	// Whole: nothing is missing all the same. The last write filled the disk, and was completed from the reserve.
	Whole bool `json:"whole,omitempty"`
}

// Missing says from when on nothing is recorded; "" where nothing is missing.
func (s *Stopped) Missing() string {
	if s == nil || s.Whole {
		return ""
	}
	text := "recording stopped before the program did (" + s.Cause + ")"
	if s.LastToken != nil {
		text += fmt.Sprintf(": nothing is known of what came after token %d", *s.LastToken)
	}
	return text
}

// RepairFound says that a repair found something missing that no account counts, such as lines of events or a table; ""
// where none did.
func (m *Metadata) RepairFound() string {
	if m.Account == nil || m.Account.Lossy() || !m.Lossy || len(m.Repaired) == 0 {
		return ""
	}
	return "a part of what was recorded is missing since, as a repair found, and is not counted here: 'llamatap " +
		"inspect' has what is there"
}

// Change is a command that a run was given while it continued.
type Change struct {
	Command   string   `json:"command"`
	Tensors   []string `json:"tensors,omitempty"`
	Points    []string `json:"points,omitempty"`
	Layers    string   `json:"layers,omitempty"`
	Tokens    int64    `json:"tokens,omitempty"`    // asked for; 0 = no end
	Level     string   `json:"level,omitempty"`     // of resource events, for one that changes it; off = none
	Selection uint32   `json:"selection,omitempty"` // its number, for one that changes what is captured
	Steering  uint32   `json:"steering,omitempty"`  // its number, for one that changes what is added
	MonoNS    int64    `json:"mono_ns"`             // when it came
	UnixNS    int64    `json:"unix_ns"`
	FirstExec *uint64  `json:"first_exec,omitempty"` // first execution that goes by it; absent where there was none
	DoneExec  *uint64  `json:"done_exec,omitempty"`  // execution by which its tokens were had
}

// Steering is what was added to the residual stream from one execution on, until the next one of the same sequence has
// a first execution. Rows of l_out that were captured meanwhile hold it.
type Steering struct {
	Number     uint32  `json:"number"`
	Sequence   *int    `json:"seq_id,omitempty"`      // the one that it is of; absent: all that have none of their own
	Vector     *Vector `json:"vector"`                // null: nothing was added; of a sequence: what all others have
	FirstExec  *uint64 `json:"first_exec,omitempty"`  // absent: no execution has gone by it
	FirstToken *int64  `json:"first_token,omitempty"` // token_index of that execution's first row
	// measured, on the model's thread; absent where nothing was exchanged
	ExchangeNS int64 `json:"exchange_ns,omitempty"`
}

// Vector is a control vector.
type Vector struct {
	File   string  `json:"file"`
	SHA256 string  `json:"sha256"`
	Scale  float64 `json:"scale"`
	Layers string  `json:"layers"`
}

// String is for one line.
func (s Steering) String() string {
	text := "nothing is added"
	if v := s.Vector; v != nil {
		text = fmt.Sprintf("%g × %s, layers %s, sha256 %.12s", v.Scale, v.File, v.Layers, v.SHA256)
	} else if s.Sequence != nil {
		text = "as the others"
	}
	if s.Sequence != nil {
		text = fmt.Sprintf("sequence %d: %s", *s.Sequence, text)
	}
	switch {
	case s.FirstExec == nil:
		text += ", no execution yet"
	case s.FirstToken == nil:
		text += fmt.Sprintf(", from execution %d on", *s.FirstExec)
	default:
		text += fmt.Sprintf(", from execution %d (token %d) on", *s.FirstExec, *s.FirstToken)
	}
	return text
}

// Repair is one repair of a run, in its metadata.
type Repair struct {
	At       time.Time `json:"at"`
	Llamatap string    `json:"llamatap,omitempty"` // version of the program that did it
	What     []string  `json:"what"`               // a sentence for everything that was found or done
}
