package sample

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/memtrace"
)

// TestModelIsWatched watches all memory of a model's process while it generates: it writes what it wrote before,
// and some of its pages.
func TestModelIsWatched(t *testing.T) {
	testenv.NeedRoot(t)
	cmd := exec.Command(testenv.NeedBinary(t), "run", "-m", testenv.Model(t), "--prompts", "-", "-n", "40", "--temp",
		"0", "-t", "1")
	cmd.Env = append(os.Environ(), WrittenEnv)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	generate := func() string {
		t.Helper()
		if _, err := io.WriteString(in, `{"prompt":"func main() {"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		var result struct{ Text string }
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &result) != nil || result.Text == "" {
			t.Fatalf("%s: %v", lines.Bytes(), lines.Err())
		}
		return result.Text
	}
	before := generate()
	w, err := Watch(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	all := watchAll(t, w, cmd.Process.Pid)
	if again := generate(); again != before {
		t.Errorf("watched it writes %q, before %q", again, before)
	}
	written, watched := uint64(0), uint64(0)
	for _, r := range all {
		watched += r.Bytes()
		found, err := w.Scan(nil, r)
		if errors.Is(err, ErrRange) {
			continue // it gave the memory back
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			written += f.Bytes()
		}
	}
	if written == 0 || written >= watched {
		t.Errorf("%d of %d bytes are in pages that were written", written, watched)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// watchAll watches all memory of a process that is no file's.
func watchAll(t *testing.T, w *Written, pid int) (all []Range) {
	t.Helper()
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "maps"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	maps, err := memtrace.ParseMaps(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if !strings.HasPrefix(m.Perms, "rw") || m.Inode != 0 || strings.HasPrefix(m.Path, "[stack") {
			continue
		}
		r := Range{Start: m.Start, End: m.End}
		if err := w.Add(r); errors.Is(err, ErrWatch) {
			continue // it was given back meanwhile
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		t.Fatal("it has no memory")
	}
	return all
}
