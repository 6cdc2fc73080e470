package memtrace

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQuantiles compares quantiles with those of the sorted values: exact where values are few or far apart, else
// at most 1/64 above.
func TestQuantiles(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		var d Distribution
		var all []int64
		for range 1 + r.IntN(300) {
			v := int64(math.Exp(r.Float64() * 42))
			if r.IntN(4) == 0 {
				v = int64(r.IntN(140))
			}
			n := 1 + r.IntN(3)
			d.Add(v, int64(n))
			for range n {
				all = append(all, v)
			}
		}
		slices.Sort(all)
		for _, p := range []float64{0, 0.01, 0.5, 0.9, 0.99, 1} {
			want := all[max(int(math.Ceil(p*float64(len(all)))), 1)-1]
			got, ok := d.Quantile(p)
			if !ok || got < want || float64(got) > float64(want)*(1+1.0/64) || want < 128 && got != want {
				t.Fatalf("seed %d: quantile %v is %d, want %d", seed, p, got, want)
			}
			if !slices.Contains(all, got) {
				t.Fatalf("%d was never added", got)
			}
		}
		if d.Min != all[0] || d.Max != all[len(all)-1] || d.Count != int64(len(all)) {
			t.Errorf("%+v", d)
		}
	}
	var none Distribution
	if _, ok := none.Quantile(0.5); ok {
		t.Error("nothing has a median")
	}
	if _, ok := none.Mean(); ok {
		t.Error("nothing has a mean")
	}
}

// TestBucketsAreInOrder: a larger value is never in an earlier bucket, and a bucket is narrow.
func TestBucketsAreInOrder(t *testing.T) {
	last := -1
	for v := int64(0); v < 1<<14; v++ {
		n := bucketOf(v)
		if n < last || n > last+1 {
			t.Fatalf("%d is in bucket %d, %d was in %d", v, n, v-1, last)
		}
		last = n
	}
	for shift := range 57 {
		low := int64(64) << shift
		if bucketOf(low) != bucketOf(low+low/64-1) || bucketOf(low) == bucketOf(low+low/64) ||
			bucketOf(low-1) >= bucketOf(low) {
			t.Errorf("bucket of %d", low)
		}
	}
	if n := bucketOf(math.MaxInt64); n > 64*64 {
		t.Errorf("%d buckets", n)
	}
}

// TestKaplanMeier is the known answer of a textbook: remission of 21 patients with 6-MP (Freireich 1963), in weeks;
// S falls to 0.807 at 7, 0.690 at 13, 0.627 at 16, 0.538 at 22 and 0.448 at 23.
func TestKaplanMeier(t *testing.T) {
	var s Survival
	for _, v := range []int64{6, 6, 6, 7, 10, 13, 16, 22, 23} {
		s.Add(v, 1, false)
	}
	for _, v := range []int64{6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35} {
		s.Add(v, 1, true)
	}
	for p, want := range map[float64]int64{0.1: 6, 0.19: 7, 0.3: 13, 0.37: 16, 0.4: 22, 0.5: 23, 0.55: 23} {
		if got, ok := s.KaplanMeier(p); !ok || got != want {
			t.Errorf("%v: %d, %v, want %d", p, got, ok, want)
		}
	}
	if v, ok := s.KaplanMeier(0.56); ok {
		t.Errorf("0.56 is known: %d", v)
	}
	if share, _ := s.CensoredShare(); share != 12.0/21 || s.Censored != 12 {
		t.Errorf("%v are censored", share)
	}
}

// TestKaplanMeierAgainstItself compares with the estimator by its definition, over single values.
func TestKaplanMeierAgainstItself(t *testing.T) {
	type value struct {
		v        int64
		censored bool
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 4))
		var s Survival
		var all []value
		for range 1 + r.IntN(60) {
			one := value{int64(r.IntN(120)), r.IntN(3) == 0}
			s.Add(one.v, 1, one.censored)
			all = append(all, one)
		}
		for _, p := range []float64{0.1, 0.5, 0.9, 0.99} {
			want, known := int64(0), false
			for left, v := 1.0, int64(0); v < 120 && !known; v++ {
				risk, ended := 0, 0
				for _, one := range all {
					if one.v >= v {
						risk++
					}
					if one.v == v && !one.censored {
						ended++
					}
				}
				if ended > 0 {
					left *= 1 - float64(ended)/float64(risk)
					known = left <= 1-p+1e-12
					want = v
				}
			}
			if got, ok := s.KaplanMeier(p); ok != known || ok && got != want {
				t.Fatalf("seed %d: %v: %d, %v, want %d, %v", seed, p, got, ok, want, known)
			}
		}
	}
}

// TestMerge: what two distributions counted, one after the other or as one, is the same.
func TestMerge(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 6))
		var whole Survival
		var parts [2]Survival
		for range r.IntN(200) {
			v, n, censored := int64(r.IntN(1<<r.IntN(40))), int64(1+r.IntN(5)), r.IntN(3) == 0
			whole.Add(v, n, censored)
			parts[r.IntN(2)].Add(v, n, censored)
		}
		var sum Survival
		sum.Merge(&parts[0])
		sum.Merge(&parts[1])
		if sum.Count != whole.Count || sum.Sum != whole.Sum || sum.Min != whole.Min || sum.Max != whole.Max ||
			sum.Censored != whole.Censored {
			t.Fatalf("seed %d: %+v, want %+v", seed, sum.Tally, whole.Tally)
		}
		for p := 0.0; p <= 1; p += 0.05 {
			a, okA := sum.Quantile(p)
			b, okB := whole.Quantile(p)
			c, okC := sum.KaplanMeier(p)
			d, okD := whole.KaplanMeier(p)
			if a != b || okA != okB || c != d || okC != okD {
				t.Fatalf("seed %d: %v: %d and %d, %d and %d", seed, p, a, b, c, d)
			}
		}
	}
}

// TestAtLeast: where too much is censored, the longest duration is the bound.
func TestAtLeast(t *testing.T) {
	var s Survival
	if _, ok := s.AtLeast(0.5); ok {
		t.Error("nothing has a bound")
	}
	s.Add(5, 10, false)
	s.Add(7, 90, true)
	if v, ok := s.AtLeast(0.99); v != 7 || !ok {
		t.Errorf("at least %d", v)
	}
	if v, _ := s.AtLeast(0.1); v != 5 {
		t.Errorf("at least %d", v)
	}
}
