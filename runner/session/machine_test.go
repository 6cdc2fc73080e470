//go:build linux

package session

import (
	"fmt"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// memoryLog is a recorder that notes what is reported of memory.
type memoryLog []string

func (l *memoryLog) Close() error { return nil }

func (l *memoryLog) Buffer(b *ggmlhooks.Buffer) error {
	*l = append(*l, fmt.Sprint("buffer ", b.ID))
	return nil
}

func (l *memoryLog) BufferEnd(e ggmlhooks.BufferEnd) error {
	*l = append(*l, fmt.Sprint("end ", e.ID))
	return nil
}

func (l *memoryLog) Moved(m *ggmlhooks.Moved) error {
	*l = append(*l, fmt.Sprint("moved ", m.Bytes))
	return nil
}

// TestEarly: what comes before the run directory is there reaches the recorders in its order, ends of buffers too.
func TestEarly(t *testing.T) {
	var early tee
	var log memoryLog
	b, m := ggmlhooks.Buffer{ID: 1}, ggmlhooks.Moved{Bytes: 7}
	_ = early.Buffer(&b)
	_ = early.Moved(&m)
	_ = early.BufferEnd(ggmlhooks.BufferEnd{ID: 1})
	b.ID, m.Bytes = 2, 8 // the reader uses them again
	_ = early.Buffer(&b)
	if err := early.open(1<<20, &log); err != nil {
		t.Fatal(err)
	}
	_ = early.BufferEnd(ggmlhooks.BufferEnd{ID: 2})
	if want := []string{"buffer 1", "moved 7", "end 1", "buffer 2", "end 2"}; !slices.Equal(log, want) {
		t.Errorf("%q, want %q", log, want)
	}
}
