package stream

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// TestDirectFile writes pieces of odd sizes around whole blocks, with and without a sync between, and reads them back.
func TestDirectFile(t *testing.T) {
	for name, size := range map[string]int{"nothing": 0, "part of a block": 5000, "whole blocks": 3 * directBlock, "blocks and a rest": 2*directBlock + 4097} {
		for _, syncAt := range []int{-1, 0, 1 << 19, directBlock + 1} {
			path := filepath.Join(t.TempDir(), "file")
			file, err := createDirect(path)
			if err != nil {
				t.Fatal(err)
			}
			random := rand.New(rand.NewPCG(uint64(size), uint64(syncAt+1)))
			want := make([]byte, size)
			for i := range want {
				want[i] = byte(random.Uint32())
			}
			synced := syncAt < 0
			for at := 0; at < size; {
				n := min(1+random.IntN(directBlock*3/2), size-at)
				if written, err := file.Write(want[at : at+n]); err != nil || written != n {
					t.Fatalf("%s: wrote %d of %d: %v", name, written, n, err)
				}
				if at += n; at >= syncAt && !synced {
					synced = true
					if err := file.Sync(); err != nil {
						t.Fatal(err)
					}
					if got, _ := os.ReadFile(path); !bytes.Equal(got, want[:at]) {
						t.Errorf("%s: %d bytes after a sync at %d", name, len(got), at)
					}
				}
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %d bytes of %d came back, %v", name, len(got), size, err)
			}
		}
		if _, err := createDirect(filepath.Join(t.TempDir(), "no", "folder")); err == nil {
			t.Error("made a file in a folder that is not there")
		}
	}
}
