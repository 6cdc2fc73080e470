//go:build linux

package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// mostTime is what any input may make a reading command take of a CPU: machines that do other work, too, take
// longer by the clock.
const mostTime = 20 * time.Second

// bomb is a stream with an index, of one packet of random bytes.
func bomb(t *testing.T, path string, size, ggmlType int, ne [4]int64) string {
	t.Helper()
	w, err := stream.Create(path, stream.Options{Codec: codec.LZ4, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{}).Read(data)
	p := stream.Packet{Name: "l_out-0", Op: "ADD", Rows: ggmlhooks.RowsTokens, RowDim: 1, NE: ne,
		TokenCount: int32(ne[1]), SrcType: ggmlType}
	row := ggmlhooks.Row{Phase: ggmlhooks.PhasePrefill}
	if err := w.AppendExecution(&stream.Execution{Rows: []ggmlhooks.Row{row}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(&p, data, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBombsWithIndex: the same holds for streams whose index states the largest packets that there can be, and for
// the repair of files that are almost nothing but a hole.
func TestBombsWithIndex(t *testing.T) {
	testenv.Slow(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	const i8, i32, rows = 24, 26, 4
	row := bomb(t, at("row.stream"), codec.MaxContent, i8, [4]int64{codec.MaxContent, 1, 1, 1})
	turned := bomb(t, at("turned.stream"), codec.MaxContent, i32,
		[4]int64{codec.MaxContent / 4 / rows / rows, rows, rows, 1})
	var commands [][]string
	all := func(stream string) [][]string {
		return [][]string{{"cat", stream, "--tensor", "l_out-0"},
			{"cat", stream, "--tensor", "l_out-0", "--format", "npy", "-o", "/dev/null"},
			{"inspect", stream, "--stats"}, {"verify", stream}, {"analyze", stream},
			{"diff", stream, stream}, {"export", stream, "--to", "npy", "-o", at("npy"), "--force"}}
	}
	commands = append(all(row), all(turned)...)
	json := []string{"--tensor", "l_out-0", "--format", "json", "-o", "/dev/null"}
	commands = append(commands, append([]string{"cat", turned}, json...))
	commands = append(commands, append([]string{"cat", row}, json...))
	for _, name := range []string{"no-index", "killed", "last-byte"} {
		run := at("run_" + name)
		if err := os.Mkdir(run, 0o700); err != nil {
			t.Fatal(err)
		}
		path := bomb(t, filepath.Join(run, rundir.StreamName), 64, i32, [4]int64{16, 1, 1, 1})
		if name == "no-index" {
			if err := os.Remove(path + stream.IndexSuffix); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Truncate(path+stream.IndexSuffix, 200); err != nil {
			t.Fatal(err)
		}
		const hole = 700 << 20 // more than a reader may hold
		if err := os.Truncate(path, hole); err != nil {
			testenv.Beyond(t, "a file system of large files", err.Error())
		}
		if name == "last-byte" {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte{1}, hole); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		commands = append(commands, []string{"report", run, "-o", at(name + ".html")}, []string{"verify", run},
			[]string{"verify", "--repair", run})
	}
	// A child's peak begins with that of this process.
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Log(err)
	}
	for _, args := range commands {
		cmd := self(args...)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		hung := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
		_ = cmd.Wait()
		if !hung.Stop() {
			t.Errorf("%q did not end", args)
		}
		used, cpu := cmd.ProcessState.SysUsage().(*syscall.Rusage).
			Maxrss, cmd.ProcessState.SystemTime()+cmd.ProcessState.UserTime()
		t.Logf("%q: %d MiB, %v of CPU, %v: %.200s", args, used>>10, cpu, time.Since(start), said.String())
		if used > mostMemory {
			t.Errorf("%q took %d MiB: %s", args, used>>10, said.String())
		}
		if cpu > mostTime {
			t.Errorf("%q took %v", args, cpu)
		}
	}
}
