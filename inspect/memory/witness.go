package memory

import (
	"math/rand/v2"

	"github.com/llamatap/llamatap/memtrace"
)

// witness is a sample that the ledger is compared with.
type witness struct {
	ns         int64
	addr, size uint64
	region     int64 // negative: none
	op         memtrace.AccessOp
	kind       memtrace.RegionType
	from       memtrace.Collector
}

// witnesses are samples of a run, an even choice of them where there are too many.
type witnesses struct {
	all    []witness
	seen   int64
	random *rand.Rand
}

// maxWitnesses bounds how many samples are compared.
const maxWitnesses = 1 << 20

// add takes a sample in, or, when there are too many, puts it in the place of a random one, so that each has the
// same chance to stay.
func (w *witnesses) add(one witness) {
	w.seen++
	if len(w.all) < maxWitnesses {
		w.all = append(w.all, one)
		return
	}
	if w.random == nil {
		w.random = rand.New(rand.NewPCG(1, 2))
	}
	if at := w.random.Int64N(w.seen); at < maxWitnesses {
		w.all[at] = one
	}
}
