package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/rundir"
)

// Visit is what one measuring process measured of one item.
type Visit struct {
	Item        int          `json:"item"`
	Round       int          `json:"round"`
	Subject     Subject      `json:"subject"`
	Repetitions []Repetition `json:"repetitions"`
	Recorded    *Recorded    `json:"recorded,omitempty"` // what the tap recorded meanwhile
}

// Recorded is the metadata of a recording. A nil field is unknown.
type Recorded struct {
	CapturedBytes uint64 `json:"captured_bytes"`
	StoredBytes   uint64 `json:"stored_bytes"`
	Tokens        int64  `json:"tokens"`
	GraphNS       int64  `json:"graph_ns"`
	OwnNS         *int64 `json:"own_ns,omitempty"`
	WaitNS        *int64 `json:"wait_ns,omitempty"`
	LostPackets   uint64 `json:"lost_packets"`
	NodesAsked    uint64 `json:"nodes_asked,omitempty"` // operations that ggml asked the tap for
	Executions    int64  `json:"executions,omitempty"`  // of graphs
}

// statusLossy is how a recorded program ends that lost tensors and was measured all the same.
const statusLossy = 3

// visit runs a measuring process. dir is a folder for what it records, which is removed again.
func visit(ctx context.Context, item *Item, seed uint64, dir string) (v Visit, err error) {
	self, err := llama.Self()
	if err != nil {
		return v, err
	}
	work, remove, err := workFolder(dir)
	if err != nil {
		return v, fmt.Errorf("make a folder for what is recorded: %w; choose another with --dir", err)
	}
	defer remove()
	spec := item.Spec
	spec.Seed = seed
	text, err := json.Marshal(spec)
	if err != nil {
		return v, err
	}
	file := filepath.Join(work, "spec.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return v, err
	}
	args := append([]string{"bench", "measure"}, item.Tap.Flags...)
	if len(item.Tap.Flags) > 0 {
		args = append(args, "--tap-out="+work)
	}
	out, err := measured(exec.CommandContext(ctx, self, append(args, file)...))
	if err != nil {
		return v, err
	}
	if err := v.read(bytes.NewReader(out)); err != nil {
		return v, err
	}
	if len(item.Tap.Flags) == 0 {
		return v, nil
	}
	m, err := readRecorded(work)
	if err != nil {
		return v, err
	}
	if v.Recorded = recorded(m); spec.PerToken {
		err = v.readCaptured(work)
	}
	return v, err
}

// measured runs a measuring process to its end. Variables of the tap do not reach it: what is measured is in the plan.
func measured(cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(config.TapVariables(), name)
	})
	err := runChild(cmd)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == statusLossy {
		return stdout.Bytes(), nil
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return nil, fmt.Errorf("%w: %s", err, strings.TrimPrefix(lines[len(lines)-1], "llamatap: "))
	}
	return stdout.Bytes(), nil
}

// read reads a measuring process's lines.
func (v *Visit) read(in io.Reader) error {
	decoder := json.NewDecoder(in)
	for decoder.More() {
		var line measureLine
		if err := decoder.Decode(&line); err != nil {
			return fmt.Errorf("read what was measured: %w", err)
		}
		if line.Subject != nil {
			v.Subject = *line.Subject
		}
		if line.Repetition != nil {
			v.Repetitions = append(v.Repetitions, *line.Repetition)
		}
	}
	if len(v.Repetitions) == 0 {
		return errors.New("the measuring process reported nothing")
	}
	return nil
}

func recorded(m *rundir.Metadata) *Recorded {
	r := &Recorded{}
	for _, s := range m.Streams {
		r.CapturedBytes += s.BytesSource
		r.StoredBytes += s.BytesStored
	}
	for phase, use := range m.Phases {
		if phase != label.PhaseSetup.String() { // its tensors were thrown away
			r.Tokens += use.Tokens
		}
		r.GraphNS += use.NS
		r.Executions += use.Graphs
	}
	for _, l := range m.Losses {
		r.LostPackets += l.Packets
	}
	if m.Tap != nil {
		r.OwnNS, r.WaitNS = m.Tap.OwnNS, m.Tap.WaitNS
		if m.Tap.NodesAsked != nil {
			r.NodesAsked = *m.Tap.NodesAsked
		}
	}
	return r
}
