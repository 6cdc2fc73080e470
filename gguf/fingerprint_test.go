package gguf

import (
	"bytes"
	"testing"
)

func TestFingerprint(t *testing.T) {
	for _, size := range []int{0, 1, 100, fingerprintHead, fingerprintHead + 1, fingerprintHead + 5<<20} {
		data := make([]byte, size)
		print := func(b []byte) string {
			t.Helper()
			s, err := Fingerprint(bytes.NewReader(b), int64(len(b)))
			if err != nil || len(s) != 64 {
				t.Fatalf("%d bytes: %q, %v", len(b), s, err)
			}
			return s
		}
		first := print(data)
		if again := print(bytes.Clone(data)); again != first {
			t.Errorf("%d bytes: %s, then %s", size, first, again)
		}
		for _, at := range []int{0, size / 2, size - 1} {
			if size == 0 || at == size/2 && size > fingerprintHead && at > fingerprintHead {
				continue // it may lie between two windows
			}
			data[at] ^= 1
			if print(data) == first {
				t.Errorf("%d bytes: byte %d changes nothing", size, at)
			}
			data[at] ^= 1
		}
		if print(append(data, 0)) == first {
			t.Errorf("%d bytes: one more changes nothing", size)
		}
	}
}
