package doctor

import (
	"fmt"
	"io/fs"
	"runtime"
	"time"

	"github.com/llamatap/llamatap/cgo/vector"
	"github.com/llamatap/llamatap/internal/machine"
	"github.com/llamatap/llamatap/internal/present"
)

// rooflineTime is how long each of the two parts is measured.
var rooflineTime = 3 * time.Second

// Roofline measures what this machine can do at most and keeps it in a file, for recordings to compare with.
func Roofline(root fs.FS, path string) ([]Fact, error) {
	r := machine.Roofline{CPU: machine.CPUName(), CPUs: runtime.NumCPU(), Threads: runtime.NumCPU(),
		Measured: time.Now().UTC().Truncate(time.Second)}
	before := otherLoad(root)
	perSecond, bits, err := vector.Peak(r.Threads, rooflineTime)
	if err != nil {
		return nil, err
	}
	bytes, err := available(root)
	if err != nil {
		return nil, err
	}
	m, err := machine.MeasureMemory(machine.Limit{Time: rooflineTime, Bytes: int64(min(bytes/8, memoryBytes))})
	if err != nil {
		return nil, err
	}
	r.GFLOPsPerS, r.VectorBits, r.GBPerS = perSecond/1e9, bits, m.Triad.PerSecond()/1e9
	memory := fmt.Sprintf("%s: STREAM triad, threads: %d", present.Rate(r.GBPerS*1e9), m.Threads)
	if m.Cached() {
		memory += "; some of it may be the caches'"
	}
	facts := []Fact{
		Fact{Topic: "roofline", Name: "computing"}.with(OK,
			fmt.Sprintf("%.0f GFLOP/s: multiply-adds of float32, vectors of %d bits, threads: %d", r.GFLOPsPerS, bits,
				r.Threads)),
		Fact{Topic: "roofline", Name: "memory"}.with(OK, memory),
		Fact{Topic: "roofline", Name: "ridge"}.with(OK,
			fmt.Sprintf("%.1f operations per byte: what does fewer is bound by the memory", r.Ridge())),
	}
	if share := max(before, otherLoad(root)); share > 0.1 {
		return facts, fmt.Errorf("not kept: other programs used %.0f %% of the processors meanwhile; end them and "+
			"measure again", 100*share)
	}
	if err := r.Save(path); err != nil {
		return facts, err
	}
	return append(facts, Fact{Topic: "roofline", Name: "kept"}.with(OK,
		path+": events of recordings hold the share that each operation reaches")), nil
}

// othersTime is how long it is watched what others compute.
const othersTime = 300 * time.Millisecond

// otherLoad waits, and returns the share of all processors that was used meanwhile; 0 where the kernel does not say.
func otherLoad(root fs.FS) float64 {
	before, _, errBefore := machine.ReadTicks(root)
	time.Sleep(othersTime)
	after, _, errAfter := machine.ReadTicks(root)
	share, ok := after.Since(before)
	if errBefore != nil || errAfter != nil || !ok {
		return 0
	}
	return share
}
