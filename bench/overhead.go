package bench

import "fmt"

// overheadRow begins the names of the rows that compare the overhead that runs print with the speed of the model,
// measured from outside.
const overheadRow = "(k) printed overhead against 1 - speed with / without, "

// widestInterval is how many points of a share an interval may span to settle anything.
const widestInterval = 0.10

// overheadLine compares, for the runs of a pair, the overhead of their accounts with what the same prompt took with and
// without the recording; not ok where a run has no account. It agrees where the printed bounds, by their medians, and
// the interval of what was measured overlap, unless that is so wide that most figures would. Fewer than six runs with
// an upper bound resolve nothing. Runs without one are counted.
func overheadLine(name string, o Outcome) (line Line, ok bool) {
	var least, most, outside []float64
	unbounded := 0
	for i, s := range o.Test {
		if s.Recorded == nil || s.Recorded.Account == nil || s.Recorded.Tokens == nil {
			return line, false
		}
		low, known := s.Recorded.Account.Time.Overhead()
		high, bounded := s.Recorded.Account.Time.OverheadMost()
		with, without := s.graphTime(s), o.Base[i].graphTime(s)
		if !known || with == 0 || without == 0 {
			return line, false
		}
		if !bounded {
			unbounded++
			continue
		}
		least, most, outside = append(least, low), append(most, high), append(outside, 1-without/with)
	}
	if unbounded > 0 && len(least) <= unbounded {
		return Line{Name: overheadRow + name, Figure: fmt.Sprintf("no upper bound in %d of %d runs; not resolved",
			unbounded,
			len(o.Test))}, true
	}
	if len(least) == 0 {
		return line, false
	}
	low, high, q := median(least), median(most), medianInterval(outside)
	verdict := "agrees"
	switch {
	case q.Pairs < fewestPairs:
		verdict = fmt.Sprintf("not resolved: fewer than %d pairs", fewestPairs)
	case high < q.Low || low > q.High:
		verdict = "differs"
	case q.High-q.Low > widestInterval:
		verdict = "not resolved"
	}
	figure := fmt.Sprintf("printed %.2f to %.2f %%; measured %.2f %% [%.2f, %.2f]; %s",
		100*low, 100*high, 100*q.Median, 100*q.Low, 100*q.High, verdict)
	if unbounded > 0 {
		figure += fmt.Sprintf("; %d of %d runs left out, without an upper bound", unbounded, len(o.Test))
	}
	return Line{Name: overheadRow + name, Figure: figure}, true
}

// graphTime is how long the tokens of a recorded run take at the rates of s, in seconds; 0 where a rate is not known.
func (s Sample) graphTime(recorded Sample) float64 {
	n := recorded.Recorded.Tokens
	if s.Prefill <= 0 || s.Decode <= 0 {
		return 0
	}
	return float64(n.Prompt)/s.Prefill + float64(n.Generated)/s.Decode
}
