package analyze

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/llamatap/llamatap/memtrace"
)

// lives makes a survival of ended and censored durations in seconds, each of so many bytes.
func lives(bytes int64, ended, censored []float64) *memtrace.Survival {
	s := &memtrace.Survival{}
	for _, v := range ended {
		s.Add(int64(v*1e9), bytes, false)
	}
	for _, v := range censored {
		s.Add(int64(v*1e9), bytes, true)
	}
	return s
}

func published(v float64) *Figure { return &Figure{Value: v, Source: "test"} }

// near reports whether two figures are equal but for rounding.
func near(a, b float64) bool { return a == b || math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) }

func TestRefreshes(t *testing.T) {
	for _, c := range []struct{ needed, retained, want float64 }{
		{0, 10, 0}, {5, 10, 0}, {10, 10, 0}, {10.001, 10, 1}, {20, 10, 1}, {30, 10, 2}, {10, 0.1, 99}, {0.3, 0.1, 2},
		{1, 56e-6, 17857}, {3600, 1e9, 0},
	} {
		if got := refreshes(c.needed, c.retained); got != c.want {
			t.Errorf("needed for %v s, retained for %v s: %v refreshes, want %v", c.needed, c.retained, got, c.want)
		}
	}
}

// example is a cache of 1000 bytes in 4 blocks, watched for 100 s.
func example() subject {
	return subject{
		Type: memtrace.KVCache, Name: "cache_k_l0", Bytes: 1000, Seconds: 100, BytesRead: 1e6, BytesWritten: 1500,
		Lives: lives(250, []float64{25, 25, 25, 25}, []float64{40, 40}), Written: 1500, WrittenOnce: 1500,
	}
}

// TestByHand compares every figure with what pen and paper give. 864 is the times that the run fits into a day.
//
//	ended: 4 lives of 25 s and 250 B at 10 s of retention: 2 refreshes each, 8 in the run, 6912 a day, 1,728,000 B
//
// censored: 2 lives of 40 s: 3 each, 6 in the run, 5184 a day, 1,296,000 B; or needed all day: 8639 each, 17278,
// 4,319,500 B
//
//	written: 1500 B in the run, 1,296,000 a day
func TestByHand(t *testing.T) {
	s := example()
	c := &Class{ID: "x", RetentionS: published(10), Endurance: published(1e6), ReadPJ: published(2),
		WritePJ: published(20), Refresh: Needed}
	row := judgeRow([]subject{s}, c, demandOptions{Tokens: 10})
	for name, v := range map[string][2]float64{
		"read per day":       {row.ReadPerDay, 864e6},
		"written per day":    {row.WrittenPerDay, 1296000},
		"refreshes, low":     {row.Refreshes.Low, 3024},
		"refreshes, high":    {row.Refreshes.High, 6047.5},
		"refreshed, low":     {row.RefreshedPerDay.Low, 3024000},
		"refreshed, high":    {row.RefreshedPerDay.High, 6047500},
		"writes/cell, low":   {row.WritesPerCell.Low, 4320},
		"writes/cell, high":  {row.WritesPerCell.High, 7343.5},
		"years, low":         {row.Lifetime.Low, 1e6 / 7343.5 / 365.25},
		"years, high":        {row.Lifetime.High, 1e6 / 4320 / 365.25},
		"reading, J":         {*row.Energy.Read, 0.013824},
		"writing, J":         {*row.Energy.Write, 0.00020736},
		"refreshing, low J":  {row.Energy.Refresh.Low, 0.000532224},
		"refreshing, high J": {row.Energy.Refresh.High, 0.00106436},
		"in all, low J":      {row.Energy.Total.Low, 0.014563584},
		"in all, high J":     {row.Energy.Total.High, 0.01509572},
		"per token, low J":   {row.EnergyPerToken.Low, 0.014563584 / 864 / 10},
	} {
		if !near(v[0], v[1]) {
			t.Errorf("%s: %v, want %v", name, v[0], v[1])
		}
	}
	if row.Verdict != WearsOut {
		t.Errorf("a cell that lasts for months %s", row.Verdict)
	}
}

// TestLoadedBefore: a weight is written when it is loaded, maybe long before the run was watched. It is refreshed once
// per retention at most all the same: 8639 times a day.
func TestLoadedBefore(t *testing.T) {
	s := example()
	s.Type, s.Seconds, s.Lives = memtrace.Weight, 15, lives(1000, nil, []float64{60})
	if b := s.demand(&Class{RetentionS: published(10), Refresh: Needed}).RefreshedPerDay; b != exactly(8639000) {
		t.Errorf("%+v", b)
	}
}

// TestPassing: what is in an activation when the run ends is not needed any more, whatever is censored.
func TestPassing(t *testing.T) {
	s := example()
	s.Type = memtrace.Activation
	row := judgeRow([]subject{s}, &Class{RetentionS: published(10), Refresh: Needed}, demandOptions{})
	if row.RefreshedPerDay != exactly(3024000) || row.Verdict != Refreshed {
		t.Errorf("%+v, %s", row.RefreshedPerDay, row.Verdict)
	}
}

// TestResolution: lives that were measured as 25 s ± 6 s are refreshed once at least, and three times at most, with
// a retention of 10 s; what seems to take no time may have taken some.
func TestResolution(t *testing.T) {
	s := example()
	s.Lives, s.Resolution = lives(250, []float64{25}, nil), 6
	c := &Class{RetentionS: published(10), Refresh: Needed}
	if b := s.demand(c).RefreshedPerDay; b != (Bounds{250 * 864, 3 * 250 * 864}) {
		t.Errorf("%+v", b)
	}
	s.Lives = lives(250, []float64{0}, nil)
	if row := judgeRow([]subject{s}, &Class{RetentionS: published(5), Refresh: Needed},
		demandOptions{}); row.RefreshedPerDay != (Bounds{0, 250 * 864}) || row.Verdict != TooShort {
		t.Errorf("%+v, %s", row.RefreshedPerDay, row.Verdict)
	}
}

// TestDRAM: all is refreshed all the time, whatever is needed: 86400/0.064 = 1,350,000 times a day, at its own energy.
func TestDRAM(t *testing.T) {
	c := &Class{ID: "dram", RetentionS: published(0.064), ReadPJ: published(4), WritePJ: published(4),
		RefreshPJ: published(0.1), Refresh: Everything}
	row := judgeRow([]subject{example(), example()}, c, demandOptions{})
	if row.Refreshes != exactly(1350000) || row.RefreshedPerDay != exactly(2*1.35e9) {
		t.Errorf("%+v", row.Demand)
	}
	if j := row.Energy.Refresh; !near(j.Low, 2*1.35e9*8*0.1e-12) || j.Low != j.High {
		t.Errorf("%v J", j)
	}
	if row.Lifetime != nil || row.Verdict != RefreshBound { // 2.7 GB refreshed, 1.73 GB read
		t.Errorf("%v, %s", row.Lifetime, row.Verdict)
	}
}

// TestUnpublished: what follows from a figure that nobody published is not there.
func TestUnpublished(t *testing.T) {
	s := example()
	for name, c := range map[string]*Class{
		"nothing but retention": {RetentionS: published(10), Refresh: Needed},
		"no retention":          {Endurance: published(1e9), WritePJ: published(3), Refresh: Needed},
		"no reading":            {RetentionS: published(10), WritePJ: published(3), Refresh: Needed},
	} {
		row := judgeRow([]subject{s}, c, demandOptions{Tokens: 5})
		if row.Energy.Total != nil || row.Energy.Read != nil || row.EnergyPerToken != nil || row.Energy.Refresh != nil {
			t.Errorf("%s: %+v", name, row.Energy)
		}
		if (row.Lifetime == nil) != (c.Endurance == nil) || (row.Energy.Write == nil) != (c.WritePJ == nil) {
			t.Errorf("%s: %+v", name, row)
		}
	}
}

// TestVerdicts has a case for each.
func TestVerdicts(t *testing.T) {
	short, long := example(), example()
	short.Lives, long.Lives = lives(250, []float64{1, 2, 9}, nil), lives(250, []float64{11}, nil)
	open, idle := example(), example()
	open.Lives, idle.Lives = lives(250, nil, []float64{0.9}), nil
	quiet := long
	quiet.BytesRead, quiet.BytesWritten = 0, 10
	for name, c := range map[string]struct {
		s     subject
		class Class
		want  Verdict
	}{
		"short lives":           {short, Class{RetentionS: published(10), Endurance: published(1e12)}, AsItIs},
		"one refresh":           {long, Class{RetentionS: published(10), Endurance: published(1e12)}, Refreshed},
		"worn by the program":   {short, Class{RetentionS: published(10), Endurance: published(1e3)}, WearsOut},
		"more refresh than use": {quiet, Class{RetentionS: published(1), Endurance: published(1e12)}, RefreshBound},
		"went on":               {open, Class{RetentionS: published(10), Endurance: published(1e12)}, TooShort},
		"no lives":              {idle, Class{RetentionS: published(10)}, Unknown},
		"no retention":          {short, Class{Endurance: published(1e12)}, Unknown},
		"no retention, worn":    {short, Class{Endurance: published(1e3)}, WearsOut},
		"DRAM needs no lives":   {idle, Class{RetentionS: published(0.064), Refresh: Everything}, RefreshBound},
	} {
		if got := judgeRow([]subject{c.s}, &c.class, demandOptions{}).Verdict; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// random makes a subject of any kind.
func random(r *rand.Rand) subject {
	s := subject{Bytes: 1 + r.Uint64N(1e9), Seconds: 0.1 + 100*r.Float64(), BytesRead: r.Uint64N(1e12),
		BytesWritten: r.Uint64N(1e10), Resolution: r.Float64() * float64(r.IntN(2)), Lives: &memtrace.Survival{}}
	for range r.IntN(200) {
		s.Lives.Add(int64(1e9*s.Seconds*r.Float64()), 1+r.Int64N(1e6), r.IntN(3) == 0)
	}
	return s
}

// TestMonotone: with a longer retention nothing is refreshed more often, and cells do not wear out sooner; with one
// that outlives the run nothing is refreshed that is known to have ended.
func TestMonotone(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := random(r)
		last, lastYears := exactly(math.Inf(1)), Years{}
		for tau := 1e-3; tau < 1e4; tau *= 1 + 3*r.Float64() {
			c := &Class{RetentionS: published(tau), Endurance: published(1e9), ReadPJ: published(1),
				WritePJ: published(1), Refresh: Needed}
			l := s.demand(c)
			b, years := l.RefreshedPerDay, l.lifetimeYears(c)
			if b.Low > b.High || b.Low > last.Low || b.High > last.High || years.Low > years.High ||
				years.Low < lastYears.Low || years.High < lastYears.High {
				t.Fatalf("seed %d, retention %v: %v after %v, %v after %v", seed, tau, b, last, *years, lastYears)
			}
			if tau > s.Seconds && b.Low != 0 {
				t.Fatalf("seed %d: %v refreshes of a run of %v s at %v s", seed, b.Low, s.Seconds, tau)
			}
			last, lastYears = b, *years
		}
	}
}

// TestLinear: of twice the bytes with the same lives everything takes twice the energy, and cells last as long.
func TestLinear(t *testing.T) {
	for seed := range uint64(100) {
		s := random(rand.New(rand.NewPCG(seed, 2)))
		twice := s
		twice.Bytes, twice.BytesRead, twice.BytesWritten, twice.Lives = 2*s.Bytes, 2*s.BytesRead, 2*s.BytesWritten,
			&memtrace.Survival{}
		twice.Lives.Merge(s.Lives)
		twice.Lives.Merge(s.Lives)
		c := &Class{RetentionS: published(0.5), Endurance: published(1e9), ReadPJ: published(3), WritePJ: published(7),
			Refresh: Needed}
		one, two := judgeRow([]subject{s}, c, demandOptions{}), judgeRow([]subject{twice}, c, demandOptions{})
		both := judgeRow([]subject{s, s}, c, demandOptions{})
		if !near(2*one.Energy.Total.Low, two.Energy.Total.Low) ||
			!near(2*one.Energy.Total.High, two.Energy.Total.High) || !near(one.Lifetime.Low, two.Lifetime.Low) {
			t.Fatalf("seed %d: %v, twice %v", seed, one.Energy.Total, two.Energy.Total)
		}
		if !near(both.Energy.Total.Low, two.Energy.Total.Low) || !near(both.Lifetime.High, two.Lifetime.High) ||
			!near(both.RefreshedPerDay.High, 2*one.RefreshedPerDay.High) ||
			!near(both.Refreshes.Low, one.Refreshes.Low) {
			t.Fatalf("seed %d: two of them: %v, twice %v", seed, both.Energy.Total, two.Energy.Total)
		}
	}
}

// TestBruteForce refreshes life by life and period by period, as a memory would.
func TestBruteForce(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := subject{Bytes: 1, Seconds: 86400, Lives: &memtrace.Survival{}}
		tau, want := int64(1+r.IntN(20)), 0
		for range r.IntN(50) {
			needed := int64(r.IntN(60)) // whole seconds below 64 are in buckets of their own
			s.Lives.Add(needed*second, 1, false)
			for at := tau; at < needed; at += tau {
				want++
			}
		}
		if got := s.demand(&Class{RetentionS: published(float64(tau)), Refresh: Needed}).RefreshedPerDay; !near(
			got.Low, float64(want)) || !near(got.High, float64(want)) {
			t.Fatalf("seed %d: %v, want %d", seed, got, want)
		}
	}
}

// TestVary: only the figure that is varied changes, and at factor 1 nothing does.
func TestVary(t *testing.T) {
	s := []subject{example()}
	c := &Class{ID: "x", RetentionS: published(10), Endurance: published(1e6), ReadPJ: published(2),
		WritePJ: published(20), Refresh: Needed}
	base, seen := judgeRow(s, c, demandOptions{}), map[string]int{}
	for _, v := range vary(s, c, demandOptions{}) {
		seen[v.Parameter]++
		switch {
		case v.Factor == 1 && (v.Demand != base.Demand || *v.Energy.Total != *base.Energy.Total ||
			*v.Lifetime != *base.Lifetime):
			t.Errorf("%+v, want %+v", v.Row, base)
		case v.Parameter == "endurance_writes" && !near(v.Lifetime.Low, v.Factor*base.Lifetime.Low):
			t.Errorf("endurance times %v: %v", v.Factor, v.Lifetime)
		case v.Parameter == "read_pj_per_bit" && !near(*v.Energy.Read, v.Factor**base.Energy.Read):
			t.Errorf("reading times %v: %v", v.Factor, *v.Energy.Read)
		case v.Parameter == "retention_s" && v.Factor == 10 && v.RefreshedPerDay.Low != 0:
			t.Errorf("retained for 100 s: %v", v.RefreshedPerDay)
		}
	}
	if seen["retention_s"] != 7 || seen["endurance_writes"] != 3 || seen["refresh_pj_per_bit"] != 0 || len(seen) != 4 {
		t.Errorf("%v", seen)
	}
	if c.RetentionS.Value != 10 {
		t.Error("the class itself was changed")
	}
}
