package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestEndLines cuts a file at each byte of its last line, which may be longer than a block and be the only one.
func TestEndLines(t *testing.T) {
	d, err := Create(t.TempDir(), "m", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(d.Path(), "resource.jsonl")
	for _, before := range []string{"", "{\"a\":1}\n{}\n", strings.Repeat("{\"b\":\"x\"}\n", 9000)} {
		for _, last := range []string{`{"event":"größe \"\n\" {}","v":[1,{"n":2}]}`, `{"long":"` +
			strings.Repeat("y", 65<<10) + `"}`} {
			for end := 0; end <= len(last)+1; end++ {
				if len(last) > 1000 && end > 20 && end < len(last)-20 && end%7919 != 0 {
					continue
				}
				text := before + (last + "\n")[:end]
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				want, cut := before, int64(end)
				if end >= len(last) {
					want, cut = before+last+"\n", 0
				}
				for i, cut := range []int64{cut, 0} { // the second time there is nothing to do
					n, err := EndLines(filepath.Join(d.Path(), "resource.jsonl"))
					got, _ := os.ReadFile(path)
					if err != nil || n != cut || string(got) != want {
						t.Fatalf("%d bytes, %d of the last line, time %d: %d cut, %d left, %v", len(text), end, i, n,
							len(got), err)
					}
				}
			}
		}
	}
	if err := errors.Join(os.Remove(path), os.Symlink(filepath.Join(d.Path(), "other"), path)); err != nil {
		t.Fatal(err)
	}
	if _, err := EndLines(filepath.Join(d.Path(), "resource.jsonl")); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a link: %v", err)
	}
}
