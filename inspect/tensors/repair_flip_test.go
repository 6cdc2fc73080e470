package tensors

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// A bit flipped at any byte of any file of a sealed run, and any file cut off anywhere, is found by Verify.
func TestEveryByteIsVerified(t *testing.T) {
	dir := sealed(t)
	step := 3
	switch {
	case testenv.Nightly():
		step = 1
	case testing.Short():
		step = 23
	}
	for _, name := range []string{rundir.StreamName, rundir.StreamName + stream.IndexSuffix, rundir.TokensName,
		rundir.MetadataName, rundir.ManifestName} {
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		check(t, err)
		for at := 0; at < len(data); at += step {
			bad := bytes.Clone(data)
			bad[at] ^= 1 << (at % 8)
			check(t, os.WriteFile(path, bad, 0o600))
			found(t, fmt.Sprintf("%s flipped at byte %d", name, at), dir, bad, data)
			check(t, os.WriteFile(path, data[:at], 0o600))
			found(t, fmt.Sprintf("%s cut at byte %d", name, at), dir, data[:at], data)
		}
		check(t, os.WriteFile(path, data, 0o600))
	}
	if v, err := Verify(dir); err != nil || !v.OK {
		t.Errorf("as it was: %+v, %v", v, err)
	}
}

func found(t *testing.T, what, dir string, bad, data []byte) {
	t.Helper()
	if v, err := Verify(dir); err == nil && v.OK && !sameText(bad, data) {
		t.Errorf("%s: Verify finds nothing", what)
	}
}

// sameText reports whether two texts differ in white space alone.
func sameText(a, b []byte) bool {
	return bytes.Equal(bytes.Join(bytes.Fields(a), nil), bytes.Join(bytes.Fields(b), nil))
}
