package memtrace

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// byteState is what a byte of memory has seen.
type byteState struct {
	touchedNS, touch int64 // touch: number of it, 0 = none
	writtenNS        int64
	known            bool
	times            int
	owner            int // 0: nobody's
	ownedSince       int64
	retention        int64 // of the last write
}

// plain computes the metrics byte by byte, from their definitions.
type plain struct {
	memory  map[uint64]*[48]byteState // by space
	regions map[int]*plainSums
	types   map[RegionType]*plainSums
	touches int64
	first   int64
	lengths [2]int64
}

type plainSums struct {
	bytesRead, bytesWritten, written, once int64
	live                                   float64
	retention                              Survival
	iai, reuse                             Distribution
	sets                                   [2]map[int64]int64
}

func (p *plain) sums(a *Touch) [2]*plainSums {
	if p.regions[a.Region] == nil {
		p.regions[a.Region] = &plainSums{sets: [2]map[int64]int64{{}, {}}}
	}
	if p.types[a.Type] == nil {
		p.types[a.Type] = &plainSums{sets: [2]map[int64]int64{{}, {}}}
	}
	return [2]*plainSums{p.regions[a.Region], p.types[a.Type]}
}

// leave ends that a byte belongs to its owner.
func (p *plain) leave(b *byteState, ns int64, censored, dies bool) {
	if b.owner == 0 {
		return
	}
	s := p.regions[b.owner]
	s.live += float64(ns - b.ownedSince)
	if b.known {
		s.retention.Add(b.retention, 1, censored)
	}
	if b.times > 0 {
		s.written++
		if dies && b.times == 1 {
			s.once++
		}
		if dies {
			t := p.types[plainType(b.owner)]
			t.written++
			if b.times == 1 {
				t.once++
			}
		}
	}
}

// plainType is the type of regions of the test, by their number.
func plainType(region int) RegionType {
	return []RegionType{Other, Weight, KVCache, Activation, Activation, Activation}[region]
}

func (p *plain) add(a *Touch) {
	memory := p.memory[a.Buffer]
	if memory == nil {
		memory = new([48]byteState)
		p.memory[a.Buffer] = memory
	}
	if a.Op == OpFree {
		for at := a.Offset; at < a.Offset+a.Size; at++ {
			p.leave(&memory[at], a.NS, a.Ended, true)
			memory[at] = byteState{}
		}
		return
	}
	if a.Pieces > 1 && a.Type != KVCache { // they come one after the other
		for i := range a.Pieces {
			one := *a
			one.Offset, one.Size, one.Pieces = a.Offset+uint64(i)*a.Stride, a.Size/uint64(a.Pieces), 0
			p.add(&one)
		}
		return
	}
	p.touches++
	sums := p.sums(a)
	covered := p.covered(a)
	for _, at := range covered {
		p.again(a, &memory[at], sums)
	}
	for _, at := range covered {
		p.touch(a, &memory[at], sums)
	}
}

// covered are the bytes of an access.
func (p *plain) covered(a *Touch) (all []uint64) {
	pieces := uint64(max(a.Pieces, 1))
	for i := range pieces {
		for k := range a.Size / pieces {
			all = append(all, a.Offset+i*a.Stride+k)
		}
	}
	return all
}

// again counts a byte that was touched before, while its neighbours of this touch have not been yet.
func (p *plain) again(a *Touch, b *byteState, sums [2]*plainSums) {
	for _, s := range sums {
		if a.Op == OpWrite {
			s.bytesWritten++
		} else {
			s.bytesRead++
		}
		if b.touch > 0 {
			distance := int64(0)
			for _, memory := range p.memory {
				for i := range memory {
					if memory[i].touch > b.touch {
						distance++
					}
				}
			}
			s.iai.Add(a.NS-b.touchedNS, 1)
			s.reuse.Add(distance, 1)
		}
	}
}

func (p *plain) touch(a *Touch, b *byteState, sums [2]*plainSums) {
	for k, length := range p.lengths {
		window := (a.NS - p.first) / length
		if b.touch > 0 && (b.touchedNS-p.first)/length == window {
			continue
		}
		for _, s := range sums {
			s.sets[k][window]++
		}
	}
	switch {
	case a.Op == OpWrite:
		if b.owner == a.Region {
			if b.known {
				p.regions[b.owner].retention.Add(b.retention, 1, false)
			}
		} else {
			p.leave(b, a.NS, false, false)
			b.ownedSince = a.NS
		}
		b.owner, b.known, b.writtenNS, b.retention = a.Region, true, a.NS, 0
		b.times++
	case b.owner == 0:
		b.owner, b.ownedSince = a.Region, a.NS
	case b.owner != a.Region: // somebody wrote it who is not seen
		p.leave(b, a.NS, false, false)
		b.owner, b.ownedSince, b.known = a.Region, a.NS, false
		b.times++
	}
	if a.Op != OpWrite && b.known {
		b.retention = a.NS - b.writtenNS
	}
	b.touch, b.touchedNS = p.touches, a.NS
}

// evict ends the lives of cells of the cache. Their bytes stay what they are: they were touched before.
func (p *plain) evict(ns int64, first, end int) {
	memory := p.memory[2]
	for at := 0; memory != nil && at < len(memory); at++ {
		if b := &memory[at]; at%12/2 >= first && at%12/2 < end {
			p.leave(b, ns, false, true)
			*b = byteState{touchedNS: b.touchedNS, touch: b.touch}
		}
	}
}

func (p *plain) finish(ns int64) {
	for _, memory := range p.memory {
		for i := range memory {
			p.leave(&memory[i], ns, true, true)
		}
	}
}

// randomTouch is one on a weight, a cache in columns, or one of three activations that share a buffer.
func randomTouch(r *rand.Rand, ns int64) *Touch {
	a := &Touch{NS: ns, Region: 1 + r.IntN(5), Op: OpRead}
	a.Type = plainType(a.Region)
	if r.IntN(3) == 0 {
		a.Op = OpWrite
	}
	switch a.Type {
	case KVCache: // 6 cells of 2 bytes, in 4 rows
		a.Buffer = 2
		first := uint64(r.IntN(6))
		n := 1 + uint64(r.IntN(int(6-first)))
		a.Offset, a.Size, a.Pieces, a.Stride = 2*first, 8*n, 4, 12
	case Weight:
		a.Buffer = 1
		a.Offset = uint64(r.IntN(40))
		a.Size = 1 + uint64(r.IntN(8))
	default:
		a.Buffer = 3
		a.Offset = uint64(r.IntN(5) * 8)
		a.Size = uint64(4 * (1 + r.IntN(2)))
		if r.IntN(8) == 0 {
			a.Pieces, a.Stride, a.Size = 2, 5, 4
		}
	}
	if a.Pieces == 0 && r.IntN(30) == 0 {
		a.Op, a.Ended = OpFree, r.IntN(4) == 0
	}
	return a
}

// TestMeterAgainstBytes compares a meter with metrics that are computed byte by byte.
func TestMeterAgainstBytes(t *testing.T) {
	testenv.Once(t)
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 5))
		m := NewMeter(7, 0, 50)
		m.Declare(1, Weight, Place{Bytes: 48})
		m.Declare(2, KVCache, Place{Bytes: 48})
		want := &plain{memory: map[uint64]*[48]byteState{}, regions: map[int]*plainSums{},
			types: map[RegionType]*plainSums{}, first: 1000, lengths: [2]int64{7, 50}}
		ns := int64(1000)
		m.clock.advance(ns)
		for range 10 + r.IntN(700) {
			a := randomTouch(r, ns)
			if a.Op == OpFree && want.regions[a.Region] == nil {
				continue
			}
			m.Add(a)
			want.add(a)
			ns += int64(r.IntN(4))
			cells := m.regions.region(2, KVCache).space
			if first := r.IntN(6); r.IntN(10) == 0 && cells != nil && cells.rows > 0 { // columns are known
				end := first + 1 + r.IntN(6-first)
				m.EndCells(2, int64(first), int64(end), 8, ns)
				want.evict(ns, first, end)
			}
		}
		m.Finish(ns)
		want.finish(ns)
		for id, s := range want.regions {
			compareMetrics(t, seed, m.Region(id), s, ns)
			if t.Failed() {
				t.Fatalf("seed %d, region %d", seed, id)
			}
		}
		for kind, s := range want.types {
			got := m.Type(kind)
			compareWritten(t, &got.Metrics, s)
			compareSpread(t, &got.IAIs, &s.iai)
			compareSpread(t, &got.Reuses, &s.reuse)
			compareSets(t, &got.Metrics, s, ns)
			if t.Failed() {
				t.Fatalf("seed %d, %v", seed, kind)
			}
		}
	}
}

func compareMetrics(t *testing.T, seed uint64, got *Metrics, want *plainSums, ns int64) {
	t.Helper()
	if got == nil {
		t.Fatalf("seed %d: no metrics", seed)
	}
	compareWritten(t, got, want)
	if got.IAI != want.iai.Tally || got.Reuse != want.reuse.Tally || math.Abs(got.LiveNS-want.live) > 1e-3 {
		t.Errorf("%+v %+v %v, want %+v %+v %v", got.IAI, got.Reuse, got.LiveNS, want.iai.Tally, want.reuse.Tally,
			want.live)
	}
	a, b := &got.Retention, &want.retention
	if a.Tally != b.Tally || a.Censored != b.Censored {
		t.Errorf("retention %+v, %d censored, want %+v, %d", a.Tally, a.Censored, b.Tally, b.Censored)
	}
	for p := 0.0; p <= 1; p += 0.1 {
		x, okX := a.KaplanMeier(p)
		y, okY := b.KaplanMeier(p)
		if x != y || okX != okY {
			t.Errorf("retention %v by Kaplan and Meier: %d, want %d", p, x, y)
		}
	}
	compareSpread(t, &a.Distribution, &b.Distribution)
	compareSets(t, got, want, ns)
}

func compareWritten(t *testing.T, got *Metrics, want *plainSums) {
	t.Helper()
	if int64(got.BytesRead) != want.bytesRead || int64(got.BytesWritten) != want.bytesWritten ||
		got.Written != want.written || got.WrittenOnce != want.once {
		t.Errorf("read %d, written %d, %d ended, %d once; want %+v", got.BytesRead, got.BytesWritten, got.Written,
			got.WrittenOnce, want)
	}
}

func compareSpread(t *testing.T, got, want *Distribution) {
	t.Helper()
	if got.Tally != want.Tally {
		t.Errorf("%+v, want %+v", got.Tally, want.Tally)
	}
	for p := 0.0; p <= 1; p += 0.1 {
		x, _ := got.Quantile(p)
		if y, _ := want.Quantile(p); x != y {
			t.Errorf("quantile %v: %d, want %d", p, x, y)
		}
	}
}

func compareSets(t *testing.T, got *Metrics, want *plainSums, ns int64) {
	t.Helper()
	for k, length := range []int64{7, 50} {
		sum, most := int64(0), int64(0)
		for _, bytes := range want.sets[k] {
			sum, most = sum+bytes, max(most, bytes)
		}
		mean, gotMost := got.WorkingSet(k)
		if n := (ns-1000)/length + 1; mean != float64(sum)/float64(n) || gotMost != most {
			t.Errorf("working set %v, at most %d, want %v of %d windows, %d", mean, gotMost, sum, n, most)
		}
	}
}
