package stream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/codec"
)

// STRAP-LLM's layout, read by somebody else's struct, lz4 and zstandard: the same names and values as our reader gives.
func TestPythonReads(t *testing.T) {
	testenv.Once(t, "TestPages")
	python := testenv.NeedPython(t, "lz4.frame", "zstandard")
	c := newCapture(20, 1)
	big := make([]float32, 300_000) // several lz4 blocks of 64 KiB, were they that small
	for i := range big {
		big[i] = float32(i%1000) / 8
	}
	c.packets = append(c.packets, Packet{Name: "größe"}, Packet{}, Packet{Name: "empty"}, Packet{Name: "one"})
	c.data = append(c.data, f32(big...), f32(0, 65504, -1e-7), nil, f32(0.333))
	for _, id := range []codec.ID{codec.None, codec.LZ4, codec.Zstd} {
		path := filepath.Join(t.TempDir(), "activations.stream")
		stream, index := c.filesOnly(t, Options{Codec: id})
		writeFiles(t, path, stream, index)
		cmd := exec.Command(python, "testdata/read.py", path, id.String())
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", id, err, stderr.String())
		}
		checkPython(t, open(t, stream, index), out)
	}
}

func checkPython(t *testing.T, r *Reader, out []byte) {
	t.Helper()
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 64<<20)
	n := 0
	for i, p := range r.Packets() {
		if !lines.Scan() {
			t.Fatalf("%d packets, and Python found %d", r.Len(), n)
		}
		n++
		var name string
		var got []float32
		if err := json.Unmarshal(lines.Bytes(), &[]any{&name, &got}); err != nil {
			t.Fatal(err)
		}
		want, err := r.Float32(p, nil)
		if err != nil || name != p.Name || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("packet %d: Python reads %q, %d values; we read %q, %d values, %v", i, name, len(got), p.Name,
				len(want), err)
		}
	}
	if lines.Scan() {
		t.Errorf("Python found more than %d packets", n)
	}
}
