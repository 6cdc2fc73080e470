package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llamatap/llamatap/internal/machine"
)

// MachineLimits measures what this machine can do at most, which other figures are ratios to.
type MachineLimits struct {
	Dir         string // folder on the disk that is measured
	Time        time.Duration
	MemoryBytes int64 // of all arrays together
	DiskBytes   int64 // of one round of writing
	Table       *Table
	Progress    func(string)
}

// Run measures in rounds and fills the table. triad is the best rate of a round, in bytes per second.
func (m MachineLimits) Run(ctx context.Context) (triad float64, err error) {
	rates := map[string][]float64{}
	var memory machine.Memory
	begin := time.Now()
	for round := 0; round == 0 || time.Since(begin)*time.Duration(round+1)/time.Duration(round) <= m.Time; round++ {
		if err := context.Cause(ctx); err != nil {
			return triad, err
		}
		share := m.Time / 30
		if memory, err = machine.MeasureMemory(machine.Limit{Time: share, Bytes: m.MemoryBytes}); err != nil {
			return triad, err
		}
		add := func(name string, r machine.Rate) { rates[name] = append(rates[name], r.PerSecond()) }
		add("triad", memory.Triad)
		add("copy", memory.Copy)
		triad = max(triad, memory.Triad.PerSecond())
		for name, write := range map[string]func(string, machine.Limit) (machine.Rate, error){"direct": machine.Direct, "buffered": machine.Buffered} {
			rate, err := write(m.Dir, machine.Limit{Time: share, Bytes: m.DiskBytes})
			if err == nil {
				add(name, rate)
			} else if !errors.Is(err, errors.ErrUnsupported) {
				return triad, err
			}
		}
		m.Progress(fmt.Sprintf("limits of the machine: round %d", round+1))
	}
	m.fill(rates, memory)
	return triad, nil
}

// fill adds the lines: memory is what the last round found.
func (m MachineLimits) fill(rates map[string][]float64, memory machine.Memory) {
	caches := ""
	if memory.Cached() {
		caches = "; part of it may be a cache's"
	}
	line := func(name, of, limit, to string) {
		if len(rates[of]) == 0 {
			m.Table.Note("machine", name+": not here, the file system has no O_DIRECT")
			return
		}
		l := Line{Section: "machine", Name: name, Value: median(append([]float64(nil), rates[of]...)) / 1e9, Unit: "GB/s"}
		if to != "" && len(rates[to]) == len(rates[of]) {
			l.Limit, l.Ratio = limit, at(MedianInterval(quotients(rates[of], rates[to])))
		} else {
			l.Figure = fmt.Sprintf("arrays of %d MiB%s", memory.ArrayBytes>>20, caches)
		}
		m.Table.Add(l)
	}
	line(fmt.Sprintf("memory: triad, %d threads", memory.Threads), "triad", "", "")
	line("memory: copy, one thread", "copy", "triad", "triad")
	line("disk: one writer past the page cache", "direct", "copy", "copy")
	line("disk: one writer through the page cache", "buffered", "direct", "direct")
}

// quotients are a[i] / b[i].
func quotients(a, b []float64) []float64 {
	var all []float64
	for i := range min(len(a), len(b)) {
		all = append(all, a[i]/b[i])
	}
	return all
}
