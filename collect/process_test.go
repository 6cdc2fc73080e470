//go:build linux

package collect

import (
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/testenv"
)

// modelFD is where the test's own model finds the memory. Built with llama.cpp, this binary holds the real tap as
// well, which takes the descriptor of FDVariable, says hello and has nothing to report.
const modelFD = 3

// TestMain lets the test's own binary stand in for a model's process.
func TestMain(m *testing.M) {
	if how := os.Getenv("LLAMATAP_TEST_MODEL"); how != "" {
		model(how)
	}
	os.Exit(m.Run())
}

// model publishes captures, each of which repeats its number, until it has done its duty or is killed by itself.
func model(how string) {
	runtime.LockOSThread()
	var st unix.Stat_t
	if err := unix.Fstat(modelFD, &st); err != nil {
		os.Exit(98)
	}
	mem, err := unix.Mmap(modelFD, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		os.Exit(99)
	}
	p := newProducer(mem)
	for i := uint64(0); i < 5000; {
		if p.capture(i, 0, 8*int(1+i%1500), func(b []byte) {
			for k := 0; k+8 <= len(b); k += 8 {
				binary.LittleEndian.PutUint64(b[k:], i)
			}
		}) {
			i++
		} else {
			time.Sleep(50 * time.Microsecond)
		}
	}
	if how == "killed" {
		unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	os.Exit(3)
}

func TestPumpReadsWhatWasPublishedBeforeTheEnd(t *testing.T) {
	for how, want := range map[string]Exit{"ends": {Status: 3}, "killed": {Status: 137, Signal: unix.SIGKILL}} {
		held := 0
		var ready func(pid int) error
		if how == "ends" {
			ready = func(pid int) error { held = pid; return nil }
		}
		t.Run(how, func(t *testing.T) {
			region := newTestRegion(t, Options{})
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "LLAMATAP_TEST_MODEL="+how)
			cmd.Stderr = os.Stderr
			cmd.ExtraFiles = []*os.File{region.File()}
			process, err := Start(cmd, region, ready)
			if err != nil {
				t.Fatal(err)
			}
			if ready != nil && held != process.PID() {
				t.Errorf("process %d was reported when %d was held", held, process.PID())
			}
			s := &sink{}
			idle := 0
			ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience())
			defer cancel()
			if err := process.Pump(ctx, NewReader(region, s),
				Idle{Do: func() error { idle++; return nil }}); err != nil {
				t.Fatal(err)
			}
			if got := process.Exit(); got != want {
				t.Errorf("exit %+v, not %+v", got, want)
			}
			if len(s.data) != 5000 || idle == 0 {
				t.Errorf("%d captures of 5000, idle %d times", len(s.data), idle)
			}
			for n, data := range s.data {
				if len(data) != 8*(1+n%1500) || binary.LittleEndian.Uint64(data) != uint64(n) ||
					binary.LittleEndian.Uint64(data[len(data)-8:]) != uint64(n) {
					t.Fatalf("capture %d has other bytes", n)
				}
			}
			if process.Usage() == nil {
				t.Error("no resource usage")
			}
		})
	}
}

// TestWithoutProc: where /proc is not mounted, as in a bare chroot, the error says what to do.
func TestWithoutProc(t *testing.T) {
	err := lowerPriority(filepath.Join(t.TempDir(), "self", "task"))
	if err == nil || !strings.Contains(err.Error(), "mount -t proc proc /proc") {
		t.Error(err)
	}
}
