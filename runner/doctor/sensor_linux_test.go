package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

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
	for _, name := range []string{"page faults", "low priority"} {
		if f := find(t, facts, sensorTopic, name); f.Status != OK && !strings.HasPrefix(f.Value, "refused") {
			t.Errorf("%+v", f)
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
	testenv.NeedRoot(t)
	for _, name := range []string{"bpf program", "bpf ring buffer", "page faults"} {
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

// TestSamplers describes the memory sampling of three kinds of processors to the kernel.
func TestSamplers(t *testing.T) {
	machine := fstest.MapFS{
		sources + "/cpu/type": file("4\n"), sources + "/cpu/events/mem-loads": file("event=0xcd,umask=0x1,ldlat=3\n"),
		sources + "/cpu/format/event": file("config:0-7\n"), sources + "/cpu/format/umask": file("config:8-15\n"),
		sources + "/cpu/format/ldlat": file("config1:0-15\n"),
		sources + "/ibs_op/type":      file("11\n"),
		sources + "/cpu_core/type":    file("4\n"), sources + "/cpu_core/events/mem-loads": file("event=0xcd\n"),
		sources + "/cpu_core/format/event": file("attr7:0-7\n"),
	}
	pebs, err := sampler{"cpu", "mem-loads", ""}.attribute(machine)
	if err != nil || pebs.Type != 4 || pebs.Config != 0x1cd || pebs.Ext1 != 3 ||
		pebs.Bits&unix.PerfBitPreciseIPBit2 == 0 {
		t.Errorf("%+v, %v", pebs, err)
	}
	ibs, err := sampler{"ibs_op", "", ""}.attribute(machine)
	if err != nil || ibs.Type != 11 || ibs.Config != 0 || ibs.Sample == 0 {
		t.Errorf("%+v, %v", ibs, err)
	}
	if _, err := (sampler{"arm_spe_0", "", ""}).attribute(machine); !absent(err) {
		t.Errorf("a sampler that is not there gives %v", err)
	}
	if _, err := (sampler{"cpu_core", "mem-loads", ""}).attribute(machine); err == nil || absent(err) {
		t.Errorf("a format that is not understood gives %v", err)
	}
	for _, look := range []func(fs.FS) Fact{memorySampling, uprobe} {
		if f := look(bare); f.Status != Missing || f.Remedy == "" {
			t.Errorf("%+v", f)
		}
		if f := look(empty); f.Status != Unknown {
			t.Errorf("%+v", f)
		}
	}
	if f := tracepoint(bare); f.Status != Missing || f.Remedy == "" {
		t.Errorf("%+v", f)
	}
}
