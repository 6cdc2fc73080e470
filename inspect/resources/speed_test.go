package resources

import (
	"bytes"
	"testing"
)

// BenchmarkSum adds up the lines of a run at VERBOSE.
func BenchmarkSum(b *testing.B) {
	lines := bytes.Split(bytes.TrimSuffix(aRun().Bytes(), []byte("\n")), []byte("\n"))
	b.SetBytes(int64(aRun().Len()))
	b.ReportAllocs()
	for b.Loop() {
		s := newSum()
		for i, line := range lines {
			s.Add(Line{Number: int64(i + 1), Text: line})
		}
	}
}
