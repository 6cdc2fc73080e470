package resources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// ErrNoRequests occurs when a run has no table of requests.
var ErrNoRequests = errors.New("no requests")

// maxRequests bounds the requests that are read.
const maxRequests = 1 << 20

// Requests is the requests of a run, by number. Times are Unix times; gaps are not read.
type Requests struct {
	All []kvcache.Request
	Cut bool // the table was not completed: requests at its end are missing
	// Energy is what devices used; empty before ReadEnergy, where no counter was read, or the run has not ended.
	Energy []DeviceEnergy
	// GivenBack is what the run no longer has of requests.
	GivenBack RequestsGivenBack
	shares    map[requestKey][]RequestShare
}

// RequestsGivenBack is what a run gave back of requests.
type RequestsGivenBack struct {
	Sampled int64   `json:"sampled"` // requests whose tensors and tokens were not kept
	Parts   int     `json:"parts"`   // of the table, which rotated
	Rows    *uint64 `json:"rows"`    // in them; nil: the run is live or was killed, and nobody counted them
	// MovedTo is the URL where the parts are that were not given back but moved to object storage; "": none were.
	MovedTo string `json:"moved_to,omitempty"`
}

// countGivenBack counts what the run gave back. A live run has no sums yet: there the first part says how many went.
func (r *Requests) countGivenBack(dir string, firstPart int) {
	for i := range r.All {
		if r.All[i].KeptBy == kvcache.KeptNone {
			r.GivenBack.Sampled++
		}
	}
	r.GivenBack.Parts = firstPart
	m, err := rundir.ReadMetadata(dir)
	if err == nil && m.Moved != nil {
		r.GivenBack.MovedTo = m.Moved.To
	}
	if err == nil && m.Rotated != nil {
		if p := m.Rotated.Parts[rundir.RequestsName]; p.Rows > 0 {
			r.GivenBack.Parts, r.GivenBack.Rows = p.Parts, &p.Rows
		}
	}
}

// OpenRequests reads the table of a run directory. The parts of one that is live, or was killed, are read as far as
// they are there.
func OpenRequests(ctx context.Context, dir string) (*Requests, error) {
	t, err := table.Open(dir, rundir.RequestsName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: record with --tap-requests; a live run has them after 30 s, or "+
			"'llamatap ctl RUN flush', and one that was killed lacks those of its last 30 s", dir, ErrNoRequests)
	}
	if err != nil {
		return nil, err
	}
	defer t.Close()
	form := table.Form{Name: rundir.RequestsName}
	var names []string
	for _, c := range kvcache.RequestColumns {
		column := table.Column{Name: c.Name, Kind: table.Int64}
		if c.Names != nil {
			column.Kind = table.Text
		}
		form.Columns, names = append(form.Columns, column), append(names, c.Name)
	}
	var texts []kvcache.RequestText // of a run that has them
	for _, c := range kvcache.RequestTexts {
		if len(t.Files) > 0 && t.Files[0].Has(c.Name) {
			form.Columns, names = append(form.Columns, table.Column{Name: c.Name, Kind: table.Text}), append(names,
				c.Name)
			texts = append(texts, c)
		}
	}
	for _, f := range t.Files {
		if err := f.Check(form); err != nil {
			return nil, err
		}
	}
	if n := t.Rows(); n > maxRequests {
		return nil, fmt.Errorf("%s: it has %d requests, at most %d can be shown: read %s with DuckDB or pandas", dir, n,
			maxRequests, rundir.RequestsName)
	}
	// runs of earlier versions lack it
	if !slices.ContainsFunc(t.Files, func(f *table.Reader) bool { return !f.Has(kvcache.BlocksColumn) }) {
		names = append(names, kvcache.BlocksColumn)
	}
	scan, err := t.Scan(names, table.ScanOptions{Ahead: 1})
	if err != nil {
		return nil, err
	}
	defer scan.Close()
	r := &Requests{Cut: t.Cut || len(t.Missing) > 0}
	for {
		rows, err := scan.Next()
		if errors.Is(err, io.EOF) {
			slices.SortStableFunc(r.All, func(a, b kvcache.Request) int { return int(a.ID - b.ID) })
			r.countGivenBack(dir, t.First)
			return r, nil
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		for row := range rows.N {
			r.All = append(r.All, requestOf(rows, row, texts))
		}
	}
}

func requestOf(rows *table.Rows, row int, texts []kvcache.RequestText) kvcache.Request {
	q := kvcache.NewRequest()
	for i, c := range kvcache.RequestColumns {
		switch v := rows.Columns[i]; {
		case v.Null(row):
		case c.Names != nil:
			*c.Of(&q) = int64(max(slices.Index(c.Names, v.Text(row)), 0))
		default:
			*c.Of(&q) = v.Ints[row]
		}
	}
	for i, c := range texts {
		if v := rows.Columns[len(kvcache.RequestColumns)+i]; !v.Null(row) {
			*c.Of(&q) = v.Text(row)
		}
	}
	if n := len(kvcache.RequestColumns) + len(texts); len(rows.Columns) > n && !rows.Columns[n].Null(row) {
		for text := range strings.SplitSeq(rows.Columns[n].Text(row), ",") {
			hash, err := strconv.ParseUint(text, 16, 64)
			if err != nil { // damaged: nothing is known of the prompt
				q.Blocks = nil
				break
			}
			q.Blocks = append(q.Blocks, hash)
		}
	}
	return q
}

// Totals adds the requests up. Their gaps are not read.
func (r *Requests) Totals() kvcache.RequestTotals {
	t := kvcache.RequestTotals{Ends: map[string]int64{}, Again: []kvcache.Again{}, Cut: r.Cut}
	for i := range r.All {
		t.Add(&r.All[i])
	}
	return t
}

// WriteCSV writes a line per request, with the columns of the table.
func (r *Requests) WriteCSV(w io.Writer) error {
	var names []string
	for _, c := range kvcache.RequestColumns {
		names = append(names, c.Name)
	}
	for _, c := range kvcache.RequestTexts {
		names = append(names, c.Name)
	}
	out := table.NewCSV(w, append(names, EnergyColumn)...)
	for i := range r.All {
		var cells []any
		for _, c := range kvcache.RequestColumns {
			cells = append(cells, requestCell(&c, &r.All[i]))
		}
		for _, c := range kvcache.RequestTexts {
			cells = append(cells, *c.Of(&r.All[i]))
		}
		out.Row(append(cells, r.joules(&r.All[i]))...)
	}
	return out.Close()
}

// requestCell is a value as text, "" where there is none.
func requestCell(c *kvcache.RequestColumn, q *kvcache.Request) string {
	switch v := *c.Of(q); {
	case v == c.Absent:
		return ""
	case c.Names != nil:
		return c.Names[v]
	default:
		return strconv.FormatInt(v, 10)
	}
}

// Values are the requests by the names of the table's columns, without what is not known.
func (r *Requests) Values() []map[string]any {
	all := make([]map[string]any, len(r.All))
	for i := range r.All {
		all[i] = map[string]any{}
		for _, c := range kvcache.RequestColumns {
			if v := *c.Of(&r.All[i]); c.Names != nil && v != c.Absent {
				all[i][c.Name] = c.Names[v]
			} else if v != c.Absent {
				all[i][c.Name] = v
			}
		}
		for _, c := range kvcache.RequestTexts {
			if text := *c.Of(&r.All[i]); text != "" {
				all[i][c.Name] = text
			}
		}
		if joules := r.joules(&r.All[i]); joules != nil {
			all[i][EnergyColumn], all[i]["apportioned_energy"] = joules, r.Shares(&r.All[i])
		}
	}
	return all
}

// WriteText writes a line per request, why prompts were processed again, and sums. text is a token's text, "" where
// none is recorded; last bounds the requests to the newest ones.
func (r *Requests) WriteText(w io.Writer, text func(id int64) string, last int) error {
	out := &present.Text{W: w}
	rows := [][]string{{" id", "time", " slot", " prompt", " cached", " output", " queue", " TTFT", " gap p50", " p99",
		" tokens/s", "end", "processed again"}}
	if len(r.Energy) > 0 {
		rows[0] = append(rows[0], " energy", " J/token")
	}
	shown := r.All[max(len(r.All)-last, 0):]
	for i := range shown {
		q := &shown[i]
		rate := ""
		if q.Output > 1 && q.LastNS > q.FirstNS {
			rate = fmt.Sprintf("%.1f", float64(q.Output-1)/float64(q.LastNS-q.FirstNS)*1e9)
		}
		rows = append(rows, []string{strconv.FormatInt(q.ID, 10), clock(q), strconv.FormatInt(q.Seq, 10),
			number(q.Prompt), number(q.Cached), number(q.Output), lapse(q.ArrivalNS, q.LaunchNS),
			lapse(q.ArrivalNS, q.FirstNS), lapse(0, q.GapP50NS), lapse(0, q.GapP99NS), rate, kvcache.EndName(q.End),
			recomputeReason(q, text)})
		if len(r.Energy) > 0 {
			rows[len(rows)-1] = append(rows[len(rows)-1], r.energyCells(q)...)
		}
	}
	out.Columns(rows)
	if n := len(r.All) - len(shown); n > 0 {
		out.Line("%s: --last %d shows all", present.Plural(n, "earlier request"), len(r.All))
	}
	t := r.Totals()
	out.Line("\n%s: %s", present.Plural(t.Requests, "request"), t.Tokens())
	if t.Drafted > 0 {
		out.Line("%s drafted, %d accepted", present.Plural(t.Drafted, "token"), t.Accepted)
	}
	if r.Cut {
		out.Line("the table is not complete: requests of the last 30 s of a live run, or before a kill, may be missing")
	}
	if n := r.GivenBack.Sampled; n > 0 {
		out.Line("%d of them are not of the sample: segments that hold tensors of no other are given back", n)
	}
	if g := r.GivenBack; g.Rows != nil {
		out.Line("the rows of %s were given back, in %s", present.Plural(*g.Rows, "earlier request"),
			present.Plural(g.Parts, "part"))
	} else if g.Parts > 0 && g.MovedTo != "" {
		out.Line("%s with rows of earlier requests, in %s alone", present.Plural(g.Parts, "part"), g.MovedTo)
	} else if g.Parts > 0 {
		out.Line("%s with rows of earlier requests, given back", present.Plural(g.Parts, "part"))
	}
	for _, d := range r.Energy {
		perToken := ""
		if d.PromptTokenJ != nil && d.TokenJ != nil {
			perToken = fmt.Sprintf("; %.3g J per prompt token, %.3g J per generated one", *d.PromptTokenJ, *d.TokenJ)
		}
		out.Line("%s: %.4g J, of it %.4g J apportioned to requests, %.4g J in other executions, %.4g J idle%s",
			d.Domain,
			d.CounterJ, d.RequestsJ, d.OtherJ, d.IdleJ, perToken)
	}
	if len(t.Again) > 0 {
		rows = [][]string{{"processed again", " requests", " tokens", " written", " cost"}}
		for _, a := range t.Again {
			rows = append(rows, []string{a.Cause, number(a.Requests), number(a.Tokens), present.Bytes(a.Bytes),
				present.Nanoseconds(a.CostNS)})
		}
		out.Line("")
		out.Columns(rows)
	}
	return out.Err
}

func number(n int64) string {
	if n < 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// lapse is the time from one time to another, "" where one is not known.
func lapse(from, to int64) string {
	if to == 0 || from == 0 && to > 1e18 {
		return ""
	}
	return present.Nanoseconds(to - from)
}

// clock is when a request came, or as early as is known.
func clock(q *kvcache.Request) string {
	for _, ns := range [...]int64{q.ArrivalNS, q.LaunchNS, q.PromptNS} {
		if ns != 0 {
			return time.Unix(0, ns).Format("15:04:05.000")
		}
	}
	return ""
}

// recomputeReason says why tokens of a prompt were computed again.
func recomputeReason(q *kvcache.Request, text func(int64) string) string {
	token := func(id int64) string {
		if t := text(id); t != "" {
			return strconv.Quote(t)
		}
		return fmt.Sprintf("token %d", id)
	}
	switch q.Cause {
	case kvcache.CauseNone:
		return ""
	case kvcache.CauseDiffers:
		return fmt.Sprintf("differs at %d: %s, not %s", q.Pos, token(q.Wants), token(q.Had))
	}
	words := fmt.Sprintf("%d tokens, %s", q.Again, kvcache.CauseName(q.Cause))
	switch {
	case q.Holder >= 0:
		words += fmt.Sprintf(": slot %d held them", q.Holder)
	case q.By >= 0:
		words += fmt.Sprintf(" by request %d at %s", q.By, time.Unix(0, q.AtNS).Format("15:04:05.000"))
	}
	return words
}
