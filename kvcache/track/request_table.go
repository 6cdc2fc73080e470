package track

import (
	"fmt"
	"time"

	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// requestSchema is that of requests.parquet.
func requestSchema() table.Schema {
	s := table.Schema{Metadata: [][2]string{{table.VersionKey, table.Version}}}
	units := map[string]table.Unit{"": "", kvcache.UnitTime: table.UnixNS, kvcache.UnitDuration: table.NS,
		kvcache.UnitBytes: table.Bytes}
	for _, c := range kvcache.RequestColumns {
		column := table.Column{Name: c.Name, Kind: table.Int64, Null: true, Unit: units[c.Unit],
			Description: c.Description}
		if c.Names != nil {
			column.Kind = table.Text
		}
		s.Columns = append(s.Columns, column)
	}
	s.Columns = append(s.Columns, table.Column{Name: kvcache.GapsColumn, Kind: table.Float32List, Null: true,
		Unit: "ms", Description: "from each chosen token to the next"},
		table.Column{Name: kvcache.BlocksColumn, Kind: table.Text, Null: true, Encoding: table.Plain,
			Description: "hash of the prompt up to the end of each 512 tokens, and of all; with a key of this run"})
	for _, c := range kvcache.RequestTexts {
		s.Columns = append(s.Columns, table.Column{Name: c.Name, Kind: table.Text, Null: true,
			Description: c.Description})
	}
	return s
}

// RequestTable writes requests.parquet, in parts: those of requests that ended more than 30 s ago are on the disk.
type RequestTable struct {
	parts  *table.Parts
	batch  *table.Batch
	folder table.Folder
	offset int64
	now    func() time.Time // nil: the system's clock
}

// NewRequestTable makes a table of nothing: a file is made with the first request. unixOffset is what must be added to
// a monotonic time to make it a Unix time, in nanoseconds.
func NewRequestTable(folder table.Folder, unixOffset int64) *RequestTable {
	return &RequestTable{folder: folder, offset: unixOffset, batch: table.NewBatch(requestSchema())}
}

// Append adds a request.
func (t *RequestTable) Append(r *kvcache.Request) error {
	if err := t.begin(); err != nil {
		return err
	}
	for i, c := range kvcache.RequestColumns {
		switch v := *c.Of(r); {
		case v == c.Absent:
		case c.Names != nil:
			t.batch.Text(i, c.Names[v])
		case c.Unit == kvcache.UnitTime:
			t.batch.Int(i, v+t.offset)
		default:
			t.batch.Int(i, v)
		}
	}
	t.batch.Floats(len(kvcache.RequestColumns), r.Gaps)
	if len(r.Blocks) > 0 {
		t.batch.Text(len(kvcache.RequestColumns)+1, hexList(r.Blocks))
	}
	for i, c := range kvcache.RequestTexts {
		if text := *c.Of(r); text != "" {
			t.batch.Text(len(kvcache.RequestColumns)+2+i, text)
		}
	}
	if err := t.batch.EndRow(); err != nil {
		return fmt.Errorf("write %s: %w", rundir.RequestsName, err)
	}
	defer t.batch.Reset()
	return t.parts.Append(t.batch)
}

// hexList is numbers in hexadecimal digits with commas.
func hexList(values []uint64) string {
	var text []byte
	for i, v := range values {
		if i > 0 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, "%016x", v)
	}
	return string(text)
}

// Settle puts on the disk what is old enough, while no requests end.
func (t *RequestTable) Settle() error {
	if t.parts == nil {
		return nil
	}
	return t.parts.Settle()
}

// Flush puts all requests on the disk that have ended.
func (t *RequestTable) Flush() error {
	if t.parts == nil {
		return nil
	}
	return t.parts.Flush()
}

// Close completes the table; without requests too, so that it is there.
func (t *RequestTable) Close() error {
	if err := t.begin(); err != nil {
		return err
	}
	return t.parts.Close()
}

// begin makes the table's first file.
func (t *RequestTable) begin() (err error) {
	if t.parts != nil {
		return nil
	}
	t.parts, err = table.NewParts(t.folder, rundir.RequestsName, requestSchema(), table.PartOptions{Now: t.now})
	if err != nil {
		return fmt.Errorf("begin %s: %w", rundir.RequestsName, err)
	}
	return nil
}
