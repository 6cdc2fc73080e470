//go:build linux

package session

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llamatap/llamatap/inspect/otlp"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/kvcache/track"
	"github.com/llamatap/llamatap/store/stream"
)

// requests is the recorder of requests with the table that it writes.
type requests struct {
	*track.Requests
	table    *track.RequestTable
	ended    kvcache.RequestTotals
	export   *otlp.Exporter   // nil: they are not exported
	exported string           // where to
	caches   *kv              // nil: cells are not followed
	looked   int64            // when tick was called last: what was published before that has been read since
	observed int64            // when the exporter saw how the run is
	out      *track.Publisher // of KV events; nil: nobody gets them
}

func newRequests(r *run, caches *kv) (*requests, error) {
	q := &requests{table: track.NewRequestTable(r.dir, r.unixOffset()), caches: caches}
	o := track.RequestOptions{Keep: r.o.Tap.OTLPTexts, Done: func(done *kvcache.Request) error {
		q.ended.Add(done)
		r.sample.decide(done)
		if q.export != nil {
			if r.o.Tap.OTLPTexts > 0 {
				q.makeTexts(r, done)
			}
			q.export.Add(*done)
		}
		return q.table.Append(done)
	}}
	if e := r.o.Tap.KVEvents; e.Endpoint != "" {
		out, err := track.Open(track.PublishOptions(e))
		if err != nil {
			return nil, err
		}
		q.out, o.Changed = out, out.Change
	}
	if r.export != nil {
		q.export, q.exported = otlp.Start(exportOf(r)), r.export.Address()
	}
	if r.sample != nil {
		o.Segment = r.sample.segment
	}
	q.Requests = track.NewRequests(o)
	if r.sample != nil {
		r.sample.requests = q.Requests
	}
	return q, nil
}

// makeTexts makes the texts that are exported: none where the run may hold none.
func (q *requests) makeTexts(r *run, done *kvcache.Request) {
	text := func(ids []int32, all int64) (words string, cut bool) {
		for _, id := range ids {
			piece, known := r.speller.text(uint32(done.Ctx), id)
			if !known {
				return "", false
			}
			if words += piece; len(words) > r.o.Tap.OTLPTexts {
				return strings.ToValidUTF8(words[:r.o.Tap.OTLPTexts], ""), true
			}
		}
		return strings.ToValidUTF8(words, "\uFFFD"), len(ids) == r.o.Tap.OTLPTexts && all > int64(len(ids))
	}
	w, output := &done.Texts, done.OutputIDs[:min(int64(len(done.OutputIDs)), max(done.Output, 0))]
	w.Prompt, w.PromptCut = text(done.PromptIDs, done.Prompt)
	w.Output, w.OutputCut = text(output, done.Output)
	done.PromptIDs, done.OutputIDs = nil, nil
}

// exportOf says what a run exports.
func exportOf(r *run) otlp.Options {
	pid, host := cmp.Or(r.region.PID(), r.pid), ""
	if name, err := os.Hostname(); err == nil {
		host = name
	}
	program := r.o.Command.Args[0]
	if at := slices.Index(r.o.Command.Args, "--argv0"); at > 0 { // it is started by its own loader
		program = r.o.Command.Args[at+1]
	}
	return otlp.Options{Settings: *r.export, Run: r.dir.ID(), Offset: r.unixOffset(), Version: r.o.Version,
		Attributes: [][2]string{{"service.name", filepath.Base(program)}, {"service.instance.id", r.dir.ID()},
			{"host.name", host}, {"process.pid", strconv.Itoa(pid)}},
		Remark: func(text string) { fmt.Fprintln(present.Err, "llamatap: OpenTelemetry:", text) }}
}

// observeEvery is how often the exporter sees how the run is.
const observeEvery = int64(time.Second)

// observe lets the exporter see how the run is.
func (q *requests) observe() {
	if q.export == nil {
		return
	}
	o := otlp.Observation{}
	o.Running, o.Waiting = q.Live()
	if q.caches != nil {
		snapshot := q.caches.Snapshot()
		if len(snapshot.Caches) == 0 { // the program has freed them, or has none yet
			snapshot.Caches = snapshot.Latest()
		}
		o.KV = &snapshot
	}
	q.export.Observe(o)
}

// tick writes what waited long enough, while nothing comes.
func (q *requests) tick() error {
	if q == nil {
		return nil
	}
	now := stream.MonoNS()
	err := errors.Join(q.Tick(q.looked), q.table.Settle())
	q.looked = now
	if now-q.observed >= observeEvery {
		q.observed = now
		q.observe()
	}
	return err
}

// Close hands on what continues, completes the table, and lets the exporter send what is left, which may take
// [otlp.FlushLimit].
func (q *requests) Close() error {
	err := errors.Join(q.Requests.Close(), q.table.Close())
	if q.export != nil {
		q.observe()
		q.export.Close()
	}
	if q.out != nil {
		err = errors.Join(err, q.out.Close())
	}
	return err
}

// now is how the requests are; nil where they are not recorded.
func (q *requests) now() *kvcache.RequestsNow {
	if q == nil {
		return nil
	}
	running, waiting := q.Live()
	now := &kvcache.RequestsNow{Running: running, Waiting: waiting, Ended: q.ended.Clone()}
	if q.export != nil {
		counts := q.export.Counts()
		now.Exported = &counts
	}
	return now
}

// summaryText reports how much of prompts was computed, and computed again.
func (q *requests) summaryText() string {
	e := &q.ended
	text := fmt.Sprintf("requests  %d, of whose prompts %d tokens were cached and %d computed", e.Requests, e.Cached,
		e.Computed)
	var again, cost int64
	for _, a := range e.Again {
		again, cost = again+a.Tokens, cost+a.CostNS
	}
	if again > 0 {
		text += fmt.Sprintf(", %d of them again in %s: llamatap requests", again, present.Nanoseconds(cost))
	}
	if q.export != nil {
		text += "\n" + q.exportWords()
	}
	if q.out != nil {
		use := q.out.Use()
		text += fmt.Sprintf("\npublished %d batches of KV events at %s", use.Batches, use.Endpoint)
		if use.Dropped > 0 {
			text += fmt.Sprintf(", %d of which subscribers lost: they did not keep up", use.Dropped)
		}
	}
	return text
}

// exportWords report the outcome of spans, and whether the last metrics were sent.
func (q *requests) exportWords() string {
	c := q.export.Counts()
	text := fmt.Sprintf("otlp      %s sent to %s", present.Plural(c.Spans, "span"), q.exported)
	dropped := ", DROPPED "
	for _, d := range []struct {
		n   int64
		why string
	}{{c.Full, "buffer full"}, {c.Refused, "refused"}, {c.Unsent, "unsent at the end"}} {
		if d.n > 0 {
			text += fmt.Sprintf("%s%d (%s)", dropped, d.n, d.why)
			dropped = ", "
		}
	}
	if c.Points > 0 {
		text += fmt.Sprintf(", %d points of metrics refused", c.Points)
	}
	if !c.LastMetrics {
		text += "; the last metrics were not sent"
	}
	return text
}
