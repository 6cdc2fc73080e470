//go:build linux

package oracle

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/store/rundir"
)

// repairs repairs a copy of a run that was killed and is to be resumed: verify reports whether its collector
// could still seal it, and afterwards it is a result that holds a beginning of what an uninterrupted run records.
func repairs(t *testing.T, dir string, want *whole) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), filepath.Base(dir))
	copyFiles(t, dir, copied)
	_, err := os.Stat(filepath.Join(copied, rundir.ManifestName))
	sealed := err == nil // by a collector that lived on
	if v := verifyJSON(t, copied); v.Sealed != sealed || v.OK && !sealed ||
		slices.Contains(v.kinds(), "unsealed") == sealed {
		t.Errorf("of a killed run, sealed %v, verify says %+v", sealed, v)
	}
	o := llamatap(t, "verify", "--repair", copied)
	v := verifyJSON(t, copied)
	if !v.Sealed || slices.Contains(v.kinds(), "damage") || slices.Contains(v.kinds(), "unsealed") {
		t.Errorf("after %s: %+v", o.stderr, v)
	}
	if v.Packets > len(want.c.packets) || v.Tokens > int64(len(want.c.tokens)) || v.OK != (o.status == 0) {
		t.Errorf("%d packets and %d tokens, status %d; %+v", v.Packets, v.Tokens, o.status, v)
	}
	if left := content(t, filepath.Join(copied, "activations.stream")); !bytes.HasPrefix(want.stream, left) {
		t.Errorf("the %d bytes of stream that are left are not the beginning of what was to be recorded", len(left))
	}
}

// copyFiles copies the files of a folder, without sockets.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err == nil {
		err = os.MkdirAll(to, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		in, err := os.Open(filepath.Join(from, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out, err := os.Create(filepath.Join(to, e.Name()))
		if err == nil {
			_, err = io.Copy(out, in)
		}
		if err != nil {
			t.Fatal(err)
		}
		in.Close()
		out.Close()
	}
}
