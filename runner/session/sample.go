//go:build linux

package session

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/kvcache/track"
	"github.com/llamatap/llamatap/store/rundir"
)

// causeSample is what asks for segments in which no kept request has a part.
const causeSample = "request_sample"

// sampler decides at the end of each request whether its tensors and tokens stay. A sealed segment in which no request
// that is kept, runs or waits for its answer has a part is given back; the newest one stays. nil: everything stays.
type sampler struct {
	files    *files
	requests *track.Requests // nil until there is a run directory
	kept     map[int]bool    // segments that have a part of a kept request
	open     []int           // sealed segments, of which nothing is decided
	changed  bool            // since the last look at them
	use      sampleUse
}

// sampleUse is request_sample of metadata.json.
type sampleUse struct {
	Rules    string           `json:"rules"`
	Requests int64            `json:"requests"` // that ended, or ran at the end
	Kept     map[string]int64 `json:"kept"`     // of them, by the first rule that is true of them
	Segments int              `json:"segments"` // that were given back for it, with what was in them
	Tokens   int64            `json:"tokens"`
	Packets  uint64           `json:"packets"`
	Bytes    int64            `json:"bytes"`
}

func newSampler(f *files) *sampler {
	if !f.run.o.Tap.KeepsSample() {
		return nil
	}
	return &sampler{files: f, kept: map[int]bool{},
		use: sampleUse{Rules: config.SampleText(f.run.o.Tap.RequestSample), Kept: map[string]int64{}}}
}

// segment is the number of the segment that is written.
func (s *sampler) segment() int { return s.files.current.place.Number }

// decide decides about a request that ended, or ran when the recording ended.
func (s *sampler) decide(q *kvcache.Request) {
	if s == nil {
		return
	}
	s.changed = true
	s.use.Requests++
	if q.KeptBy = keptBy(s.files.run.o.Tap.RequestSample, q); q.KeptBy == kvcache.KeptNone {
		return
	}
	s.use.Kept[q.KeptBy]++
	for n := q.FirstSegment; n <= q.LastSegment; n++ {
		s.kept[n] = true
	}
}

// keptBy is why a request's tensors and tokens stay: the first rule that is true of it.
func keptBy(rules []config.SampleRule, q *kvcache.Request) string {
	if q.EndNS == 0 {
		return kvcache.KeptRunning
	}
	began := q.ArrivalNS
	if began == 0 {
		began = q.LaunchNS
	}
	for _, r := range rules {
		if r.OneIn > 0 && q.ID%r.OneIn == 0 || r.Errors && q.End == kvcache.EndError ||
			r.Slower > 0 && began > 0 && q.EndNS-began >= int64(r.Slower) {
			return r.Text
		}
	}
	return kvcache.KeptNone
}

// sealed takes note of a segment that is there.
func (s *sampler) sealed(number int) {
	if s != nil {
		s.open, s.changed = append(s.open, number), true
	}
}

// removeUnkept gives back the segments that nothing keeps.
func (s *sampler) removeUnkept() (err error) {
	if s == nil || !s.changed || s.requests == nil {
		return nil
	}
	s.changed = false
	series := &s.files.series
	s.open = slices.DeleteFunc(s.open, func(n int) bool {
		at := slices.IndexFunc(series.places, func(p rundir.Segment) bool { return p.Number == n })
		switch {
		case at < 0: // a bound of the disk has taken it
		case s.kept[n]:
		case err != nil, at == len(series.places)-1, s.requests.Holds(n):
			return false
		default:
			place := series.places[at]
			if err = series.remove(place.Name, 0); err != nil {
				return false
			}
			series.note(causeSample)
			s.use.Segments, s.use.Tokens = s.use.Segments+1, s.use.Tokens+place.Tokens
			s.use.Packets, s.use.Bytes = s.use.Packets+place.Packets, s.use.Bytes+place.Bytes
		}
		delete(s.kept, n)
		return true
	})
	return err
}

// summaryText reports what of requests stays.
func (s *sampler) summaryText() string {
	total, parts := int64(0), []string{}
	for _, rule := range slices.Sorted(maps.Keys(s.use.Kept)) {
		total += s.use.Kept[rule]
		parts = append(parts, fmt.Sprintf("%s: %d", rule, s.use.Kept[rule]))
	}
	text := fmt.Sprintf("sampled   %d of %d requests kept", total, s.use.Requests)
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	return text + fmt.Sprintf("; %d segments with %d tokens, %s, given back for it", s.use.Segments, s.use.Tokens,
		present.Bytes(uint64(s.use.Bytes)))
}
