package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestSensors tries them here. Nothing but a refusal may keep root from what every kernel of CI has.
func TestSensors(t *testing.T) {
	before := descriptors(t)
	facts := sensors(os.DirFS("/"))
	for _, f := range facts {
		if lacks := f.Status == Missing || f.Status == Limited; lacks != (f.Costs != "" && f.Remedy != "") ||
			f.Value == "" {
			t.Errorf("%+v", f)
		}
	}
	if f := find(t, facts, sensorTopic, "low priority"); f.Status != OK && !strings.HasPrefix(f.Value, "refused") {
		t.Errorf("%+v", f)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
	testenv.NeedRoot(t)
	for _, name := range []string{"bpf program", "bpf ring buffer"} {
		if f := find(t, facts, sensorTopic, name); f.Status != OK {
			t.Errorf("%+v", f)
		}
	}
}

// descriptors counts the open files of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestTried(t *testing.T) {
	for _, c := range []struct {
		err    error
		status Status
		value  string
	}{
		{nil, OK, "works"},
		{fmt.Errorf("bpf: %w", unix.EPERM), Missing, "refused: bpf: operation not permitted"},
		{&fs.PathError{Op: "open", Path: "x", Err: unix.EACCES}, Missing, "refused: open x: permission denied"},
		{unix.ENOSYS, Missing, "none here: function not implemented"},
		{unix.EMFILE, Unknown, "too many open files"},
		{errors.New("odd"), Unknown, "odd"},
	} {
		if f := (Fact{}).tried(c.err, "works"); f.Status != c.status || f.Value != c.value {
			t.Errorf("%v: %+v", c.err, f)
		}
	}
}

// TestNoSensors: what a kernel does not have is missing, and what cannot be looked at is unknown.
func TestNoSensors(t *testing.T) {
	if f := uprobe(bare); f.Status != Missing || f.Remedy == "" {
		t.Errorf("%+v", f)
	}
	if f := uprobe(empty); f.Status != Unknown {
		t.Errorf("%+v", f)
	}
	if f := tracepoint(bare); f.Status != Missing || f.Remedy == "" {
		t.Errorf("%+v", f)
	}
}
