package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/llamatap/llamatap/internal/machine"
	"github.com/llamatap/llamatap/internal/present"
)

// Bounds of what is measured. The disk is written twice.
const (
	diskTime    = 900 * time.Millisecond
	diskBytes   = 128 << 20
	memoryTime  = 900 * time.Millisecond
	memoryBytes = 768 << 20
)

// speed measures the disk of the output folder, and the memory.
func speed(o Options) []Fact {
	if o.Quick {
		return nil
	}
	var facts []Fact
	dir, err := standing(o.Out)
	for _, kind := range []struct {
		name    string
		measure func(string, machine.Limit) (machine.Rate, error)
	}{{"buffered write", machine.Buffered}, {"direct write", machine.Direct}} {
		f := Fact{Topic: "speed", Name: kind.name}
		if err != nil {
			facts = append(facts, f.unknown(err))
			continue
		}
		r, err := kind.measure(dir, machine.Limit{Time: diskTime, Bytes: diskBytes})
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			f = f.with(Missing, oneLine(err.Error())).
				lacking("recordings go through the page cache", "--tap-out on another file system (ext4, xfs)")
		case err != nil:
			f = f.unknown(err)
		default:
			f = f.with(OK, fmt.Sprintf("%s: %s and fdatasync in %s", present.Rate(r.PerSecond()),
				present.Bytes(uint64(r.Bytes)), present.Duration(r.Time)))
		}
		facts = append(facts, f)
	}
	return append(append(facts, bandwidth(o.Root)...), blas(o)...)
}

// bandwidth measures the memory with at most an eighth of what is free of it.
func bandwidth(root fs.FS) []Fact {
	all, fact := Fact{Topic: "speed", Name: "memory"}, Fact{Topic: "speed", Name: "memory, one core"}
	bytes, err := FreeMemory(root)
	var m machine.Memory
	if err == nil {
		m, err = machine.MeasureMemory(machine.Limit{Time: memoryTime, Bytes: int64(min(bytes/8, memoryBytes))})
	}
	if err != nil {
		return []Fact{all.unknown(err), fact.unknown(err)}
	}
	text := fmt.Sprintf("%s: STREAM triad, threads: %d, arrays of %s", present.Rate(m.Triad.PerSecond()), m.Threads,
		present.Bytes(uint64(m.ArrayBytes)))
	switch {
	case m.CacheBytes == 0:
		text += "; the caches' size is not known, some of it may be theirs"
	case m.Cached():
		text += fmt.Sprintf("; the caches are %s, some of it may be theirs", present.Bytes(uint64(m.CacheBytes)))
	}
	return []Fact{all.with(OK, text), fact.with(OK, present.Rate(m.Copy.PerSecond())+" copied")}
}
