package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/kvcache"
)

// queued is the time of a request before it has a slot.
const queued = "queue"

// maxRequests bounds the requests that are drawn.
const maxRequests = 2048

// requestsSection is what a server's slots did, and why prompts were processed again; nil where it is not recorded.
func requestsSection(_ context.Context, r *Run, over *tracks) (*section, error) {
	if r.Requests == nil {
		return nil, nil
	}
	s := &section{ID: "requests", Title: "Requests"}
	t := r.Requests.Totals()
	s.Text = append(s.Text, present.Plural(t.Requests, "request")+": "+t.Tokens()+".")
	if t.Cut {
		s.Text = append(s.Text, "The table was not completed: the newest requests are missing.")
	}
	if c := slots(r.Requests, over); c != nil {
		s.Charts = append(s.Charts, c)
	}
	if len(r.Requests.Energy) > 0 {
		s.Tables = append(s.Tables, requestsEnergy(r.Requests.Energy))
	}
	if len(t.Again) == 0 {
		s.Text = append(s.Text, "No prompt was processed again.")
		return s, nil
	}
	rows := [][]string{{"why", "requests", "tokens", "written", "cost", "what happened"}}
	cost := &curve{Name: "cost"}
	c := &figure{Kind: drawnBars, Title: "What it cost to process prompts again, by cause",
		X: axis{Name: "time", Unit: "s"}, Series: []*curve{cost}}
	for _, a := range t.Again {
		rows = append(rows, []string{a.Cause, strconv.FormatInt(a.Requests, 10), strconv.FormatInt(a.Tokens, 10),
			present.Bytes(a.Bytes), present.Nanoseconds(a.CostNS), kvcache.CauseWords(a.Cause)})
		c.Rows, cost.Y = append(c.Rows, a.Cause), append(cost.Y, float64(a.CostNS)/1e9)
	}
	s.Charts = append(s.Charts, c)
	s.Tables = append(s.Tables, &titled{"Why prompts were processed again", rows})
	return s, nil
}

// requestsEnergy is what devices used for requests: apportioned to them, not measured.
func requestsEnergy(deviceEnergies []resources.DeviceEnergy) *titled {
	rows := [][]string{{"device", "energy counter", "apportioned to requests", "per prompt token",
		"per generated token",
		"other executions", "idle"}}
	joules := func(j *float64) string {
		if j == nil {
			return ""
		}
		return fmt.Sprintf("%.4g J", *j)
	}
	for i := range deviceEnergies {
		d := &deviceEnergies[i]
		rows = append(rows, []string{d.Domain, joules(&d.CounterJ), joules(&d.RequestsJ), joules(d.PromptTokenJ),
			joules(d.TokenJ), joules(&d.OtherJ), joules(&d.IdleJ)})
	}
	return &titled{"Energy of requests, apportioned by time and tokens", rows}
}

// phaseJoules is what all devices used for a phase of a request, as text; "" where that is not known.
func phaseJoules(from *resources.Requests, q *kvcache.Request, phase string) string {
	sum, known := 0.0, false
	for _, s := range from.Shares(q) {
		if s.Phase == phase {
			if s.Unknown {
				return ""
			}
			sum, known = sum+s.ApportionedJ, true
		}
	}
	if !known {
		return ""
	}
	return fmt.Sprintf(", %.4g J", sum)
}

// slots are requests over time, a row for each slot and one for those that wait for it; nil where times are not known.
func slots(from *resources.Requests, over *tracks) *figure {
	requests := from.All
	type lane struct {
		ctx, seq int64
		waits    bool
	}
	c := &figure{Kind: drawnSpans, Title: "Slots: queue, prefill and decode of each request", X: timeAxis}
	series := []*curve{{Name: prefill, Colour: 1}, {Name: decode, Colour: 2}, {Name: queued, Colour: 3}}
	rows := map[lane]int{}
	if n := len(requests) - maxRequests; n > 0 {
		c.Note = fmt.Sprintf("The first %d of %d requests.", maxRequests, len(requests))
		requests = requests[:maxRequests]
	}
	var lanes []lane
	each := func(f func(to *curve, at lane, from, until int64, text string)) {
		for i := range requests {
			q := &requests[i]
			name := fmt.Sprintf("request %d: ", q.ID)
			f(series[0], lane{q.Ctx, q.Seq, false}, q.PromptNS, cmp.Or(q.FirstNS, q.EndNS), name+
				present.Plural(q.Computed, "token")+fmt.Sprintf(" computed, %d cached", max(q.Cached, 0))+
				phaseJoules(from, q, prefill))
			f(series[1], lane{q.Ctx, q.Seq, false}, q.FirstNS, cmp.Or(q.LastNS, q.EndNS), name+
				present.Plural(q.Output, "token")+phaseJoules(from, q, decode))
			f(series[2], lane{q.Ctx, q.Seq, true}, q.ArrivalNS, q.LaunchNS, name+"waits")
		}
	}
	each(func(_ *curve, at lane, from, until int64, _ string) {
		if _, known := rows[at]; !known && from != 0 && until >= from {
			rows[at], lanes = 0, append(lanes, at)
		}
	})
	slices.SortFunc(lanes, func(a, b lane) int {
		waits := 0
		if a.waits != b.waits {
			waits = 1
			if b.waits {
				waits = -1
			}
		}
		return cmp.Or(cmp.Compare(a.ctx, b.ctx), cmp.Compare(a.seq, b.seq), waits)
	})
	for i, at := range lanes {
		rows[at] = i
		name := "slot " + strconv.FormatInt(at.seq, 10)
		if at.ctx > 0 {
			name = fmt.Sprintf("context %d, %s", at.ctx, name)
		}
		if at.waits {
			name += ", queue"
		}
		c.Rows = append(c.Rows, name)
	}
	each(func(to *curve, at lane, from, until int64, text string) {
		if from == 0 || until < from {
			return
		}
		to.X, to.W = append(to.X, over.unixSeconds(from)), append(to.W, float64(until-from)/1e9)
		to.Row, to.Text = append(to.Row, rows[at]), append(to.Text, text)
	})
	for _, of := range series {
		if len(of.X) > 0 {
			c.Series = append(c.Series, of)
		}
	}
	if len(c.Series) == 0 || over.Unix == 0 {
		return nil
	}
	return c
}

// requestTimes are the first and the last time of requests, on the monotonic clock.
func requestTimes(r *resources.Requests, over *tracks) (begin, end int64) {
	for i := range r.All {
		q := &r.All[i]
		for _, ns := range [...]int64{q.ArrivalNS, q.LaunchNS, q.PromptNS, q.FirstNS, q.EndNS} {
			if at := ns - over.Unix + over.Mono; ns != 0 {
				if begin == 0 {
					begin = at
				}
				begin, end = min(begin, at), max(end, at)
			}
		}
	}
	return begin, end
}
