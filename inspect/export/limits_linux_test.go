package export

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// countdown is a context that ends after it was asked so many times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestInterrupted ends exports at each of the places where they look whether they go on: nothing is left.
func TestInterrupted(t *testing.T) {
	run, err := tensors.Open(longRun(t, 1200, 16))
	check(t, err)
	defer run.Close()
	for _, form := range Forms {
		folder := t.TempDir()
		o := Options{Form: form, Complete: true, Out: filepath.Join(folder, "x.stream")}
		n := 0
		for ; ; n++ {
			_, err := Write(&countdown{context.Background(), n}, run, o)
			if err == nil {
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("%s, place %d: %v", form, n, err)
			}
			leftovers(t, folder)
		}
		if n < 2 {
			t.Errorf("%s: %d places", form, n)
		}
	}
}

// TestFullDisk exports to file systems that are too small: the error says so, and nothing is left.
func TestFullDisk(t *testing.T) {
	testenv.NeedRoot(t)
	run, err := tensors.Open(longRun(t, 500, 200))
	check(t, err)
	defer run.Close()
	for _, form := range Forms {
		room := int64(0)
		for _, share := range []int64{0, 20, 60, 95} { // of what it needs
			disk := t.TempDir()
			if err := unix.Mount("tmpfs", disk, "tmpfs", 0,
				fmt.Sprint("size=", max(room*share/100, 4096))); err != nil {
				testenv.Beyond(t, "a file system of its own", err.Error())
			}
			defer unix.Unmount(disk, unix.MNT_DETACH)
			_, err := Write(context.Background(), run,
				Options{Form: form, Complete: true, Out: filepath.Join(disk, "x.stream")})
			if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "no room for "+disk) {
				t.Errorf("%s, %d %% of %d bytes: %v", form, share, room, err)
			}
			leftovers(t, disk)
			if room == 0 {
				r, err := Write(context.Background(), run,
					Options{Form: form, Complete: true, Out: filepath.Join(t.TempDir(), "x.stream")})
				check(t, err)
				room = r.Bytes
			}
		}
	}
}

// TestMemory exports a capture of a gigabyte, in a process of its own per form, and holds what that took in memory.
func TestMemory(t *testing.T) {
	if path := os.Getenv("LLAMATAP_EXPORT_RUN"); path != "" {
		exported(t, path, Options{Form: Form(os.Getenv("LLAMATAP_EXPORT_FORM")), Out: os.Getenv("LLAMATAP_EXPORT_OUT"),
			ShardMB: 64, Complete: true})
		return
	}
	testenv.Slow(t) // it writes gigabytes
	path := longRun(t, 16384, 8192)
	for _, form := range Forms {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMemory$")
		out := filepath.Join(t.TempDir(), "x.stream")
		cmd.Env = append(os.Environ(), "LLAMATAP_EXPORT_RUN="+path, "LLAMATAP_EXPORT_FORM="+string(form),
			"LLAMATAP_EXPORT_OUT="+out)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", form, err, text)
		}
		peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
		t.Logf("%s: %d MB", form, peak/1_000_000)
		if peak > 500_000_000 {
			t.Errorf("%s takes %d MB", form, peak/1_000_000)
		}
		check(t, os.RemoveAll(filepath.Dir(out)))
	}
}

// TestRepaired exports a run whose index was damaged in its middle and made anew: what is only known from the
// stream is reported.
func TestRepaired(t *testing.T) {
	f := fixture{}
	path := f.build(t)
	name := filepath.Join(path, rundir.StreamName)
	index, err := os.ReadFile(name + stream.IndexSuffix)
	check(t, err)
	clear(index[len(index)/3 : len(index)/2])
	check(t, os.WriteFile(name+stream.IndexSuffix, index, 0o600))
	if _, err := stream.Repair(name, stream.Assumed{}); err != nil {
		t.Fatal(err)
	}
	for _, form := range []Form{NPY, Safetensors, Parquet, Arrow, Strap} {
		chosen := Selection{}
		if form == Strap {
			chosen.Ctx = new(uint32) // its streams are of one context
		}
		r := exported(t, path, Options{Form: form, Select: chosen, Out: filepath.Join(t.TempDir(), "x.stream")})
		if len(r.Notes) == 0 || !strings.Contains(strings.Join(r.Notes, ";"),
			"the index was repaired: of some rows of") {
			t.Errorf("%s: %q", form, r.Notes)
		}
	}
}
