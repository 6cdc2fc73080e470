package resources

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// State is how a run is.
type State string

// The states of a run.
const (
	StateSealed  State = "sealed"  // it has a manifest that is what was sealed
	StateDamaged State = "damaged" // its manifest is not, or cannot be read: 'llamatap verify' says why
	StateRunning State = "running" // a process writes it
	StateCutOff  State = "cut off" // none of these: 'llamatap verify --repair' seals what is there
	// StateUnsealed is of a run in object storage without a manifest: it is being copied, or that was cut off.
	StateUnsealed State = "unsealed"
)

// StateOf returns the state of a run directory. Where locks cannot be seen, every run that is not sealed counts as
// running.
func StateOf(dir string) State {
	switch sealed, err := rundir.Sealed(dir); {
	case err != nil:
		return StateDamaged
	case sealed:
		return StateSealed
	}
	if held, known := rundir.InUse(dir); held || !known {
		return StateRunning
	}
	return StateCutOff
}

// Run is what a run directory holds, whichever recorders wrote it: by names, sizes and metadata alone.
type Run struct {
	Path      string    `json:"path"`
	ID        string    `json:"run"`
	Model     string    `json:"model,omitempty"`
	Created   time.Time `json:"created,omitzero"`
	State     State     `json:"state"`
	Tokens    *int64    `json:"tokens,omitempty"` // computed: prompt and generated; absent where nothing says it
	Recorders []string  `json:"recorders"`        // that were asked for
	Bytes     int64     `json:"bytes"`            // of all files, derived ones included
	// something is missing, or recording stopped before the program did
	Lossy  bool          `json:"lossy"`
	Losses []rundir.Loss `json:"losses"`
	// of the run, whatever recorded it; absent where its metadata have none
	Account *rundir.Account      `json:"account,omitempty"`
	Data    []Data               `json:"data"`
	Hosts   []resource.OtherHost `json:"hosts,omitempty"`
	// folder with the rows of its tensors, of a run with --tap-dataset
	Dataset string `json:"dataset,omitempty"`
	// what was added to the residual stream, one after the other
	Steering []rundir.Steering `json:"steering,omitempty"`
}

// Data is what one recorder, or several of a kind, wrote.
type Data struct {
	What    string `json:"what"`
	Bytes   int64  `json:"bytes"`
	Command string `json:"command,omitempty"` // that reads it, with the directory; "": none reads it in object storage
}

// kinds are the files of recorders, by the beginnings of their names, and what reads them.
var kinds = []struct{ prefix, what, command string }{
	{rundir.StreamName, "tensors", "llamatap inspect"},
	{"seg-", "tensors, in segments", "llamatap inspect"},
	{"resource", "resource events", "llamatap resource summary"},
	{"kv_block_lifecycle", "KV cache", "llamatap kv"},
	{"requests", "requests", "llamatap requests"},
	{"region_map", "memory regions", "llamatap memory"},
	{"trace", "memory accesses", "llamatap memory"},
	{"process", "processes", "jq ."},
	{"block_io", "disks", "llamatap host analyze"},
	{"system_metrics", "the system", "llamatap host analyze"},
	{"host_waits", "waiting", "llamatap host waits"},
	{"host_faults", "page faults", "llamatap host waits"},
	{"llm_prof", "system calls", "llamatap host analyze"},
	{"hosts", "other hosts", "jq ."},
	{"transfers", "what was moved to devices", "jq ."},
}

// ReadRun describes a run directory. A directory that holds nothing of a run is fs.ErrNotExist.
func ReadRun(dir string) (*Run, error) {
	whole, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	r := newRun(dir, filepath.Base(whole), StateOf(dir))
	known := false
	for _, e := range entries {
		name := e.Name()
		known = r.note(name, rundir.SizeOf(filepath.Join(dir, name))) || known || name == rundir.MetadataName ||
			name == rundir.ManifestName
	}
	if !known {
		return nil, fmt.Errorf("%s is not a run: %w", dir, fs.ErrNotExist)
	}
	m, err := rundir.FindMetadata(dir)
	if err == nil && m != nil {
		r.describe(m)
	}
	return r, err
}

// StoredRun describes a run in object storage by the files that its URL has, and its metadata; nil: it is not sealed.
func StoredRun(url string, files []rundir.File, m *rundir.Metadata) *Run {
	r := newRun(url, path.Base(url), StateUnsealed)
	for _, f := range files {
		r.note(f.Name, f.Size)
	}
	for i := range r.Data {
		if strings.HasPrefix(r.Data[i].Command, "jq") { // which takes no URL
			r.Data[i].Command = ""
		}
	}
	if m != nil {
		r.State = StateSealed
		r.describe(m)
	}
	return r
}

func newRun(path, id string, state State) *Run {
	return &Run{Path: path, ID: id, State: state, Recorders: []string{}, Losses: []rundir.Loss{}, Data: []Data{}}
}

// note adds a file, or a folder, to what the run holds. It reports whether a recorder made it.
func (r *Run) note(name string, size int64) bool {
	r.Bytes += size
	for _, k := range kinds {
		if !strings.HasPrefix(name, k.prefix) {
			continue
		}
		for i := range r.Data {
			if r.Data[i].What == k.what {
				r.Data[i].Bytes += size
				return true
			}
		}
		command := k.command + " " + r.Path
		if strings.HasPrefix(k.command, "jq") { // none of ours reads it
			command = k.command + " " + filepath.Join(r.Path, name)
		}
		r.Data = append(r.Data, Data{k.what, size, command})
		return true
	}
	return false
}

// describe takes in what the metadata say.
func (r *Run) describe(m *rundir.Metadata) {
	r.Model, r.Created, r.Lossy = m.Model.Name, m.Created, m.Lossy || m.Stopped != nil
	if m.Losses != nil {
		r.Losses = m.Losses
	}
	r.Account, r.Steering = m.Account, m.Steering
	if m.Tokens != nil {
		r.Tokens = new(m.Tokens.Prompt + m.Tokens.Generated)
	}
	r.Hosts = resource.OtherHosts(m.Extra["hosts"])
	var dataset struct{ Path string }
	if json.Unmarshal(m.Extra["dataset"], &dataset) == nil {
		r.Dataset = dataset.Path
	}
	if asked := m.Recorders(); asked != nil {
		r.Recorders = asked
	}
}

// WriteText writes what a run holds, and by what it is read.
func (r *Run) WriteText(out io.Writer) error {
	rows := [][]string{{"run", r.Path + ", " + string(r.State)}}
	if r.Model != "" {
		rows = append(rows, []string{"model", r.Model})
	}
	rows = append(rows, []string{"tokens", r.tokens()})
	if len(r.Recorders) > 0 {
		rows = append(rows, []string{"recorders", strings.Join(r.Recorders, ", ")})
	}
	if r.Dataset != "" {
		rows = append(rows, []string{"dataset", r.Dataset})
	}
	for _, steering := range r.Steering {
		if steering.FirstExec != nil {
			rows = append(rows, []string{"steering", steering.String()})
		}
	}
	switch {
	case r.Account != nil && r.Account.Lossy():
		rows = append(rows, []string{"lost", present.Losses(r.Account)})
	case r.Lossy && len(r.Losses) == 0:
		rows = append(rows, []string{"lost", "the run is marked lossy"})
	default:
		for _, l := range r.Losses {
			rows = append(rows, []string{"lost",
				fmt.Sprintf("%d packets, %s: %s", l.Packets, present.Bytes(int64(l.Bytes)), l.Cause)})
		}
	}
	if err := present.Table(out, rows); err != nil {
		return err
	}
	return r.WriteData(out, "")
}

// WriteData lists what the run holds, but for one kind.
func (r *Run) WriteData(out io.Writer, but string) error {
	var rows [][]string
	for i := range r.Hosts {
		if _, err := fmt.Fprintln(out, "host", r.Hosts[i].String()); err != nil {
			return err
		}
	}
	for _, d := range r.Data {
		if but == "" || !strings.HasPrefix(d.What, but) {
			rows = append(rows, []string{d.What, present.Bytes(d.Bytes), d.Command})
		}
	}
	return present.Table(out, rows)
}

func (r *Run) tokens() string {
	if r.Tokens == nil {
		return "not known"
	}
	return present.Count(*r.Tokens)
}

// when is the local time at which the run began, in a form that sorts.
func (r *Run) when() string {
	if r.Created.IsZero() {
		return "not known"
	}
	return r.Created.Local().Format(time.DateTime)
}

// WriteRuns writes a line for each run.
func WriteRuns(out io.Writer, runs []*Run) error {
	rows := [][]string{{"run", "model", "when", "tokens", "recorders", "size", "state"}}
	for _, r := range runs {
		state := string(r.State)
		if r.Lossy {
			state += ", lossy"
		}
		rows = append(rows, []string{r.ID, r.Model, r.when(), r.tokens(), strings.Join(r.Recorders, ","),
			present.Bytes(r.Bytes), state})
	}
	return present.Table(out, rows)
}
