package table_test

import (
	"bytes"
	"io"
	"time"

	"github.com/llamatap/llamatap/store/table"
)

// Rate is how fast rows were written, or read.
type Rate struct {
	Rows     int64
	Bytes    int64 // of files
	Duration time.Duration
}

// PerSecond is rows per second.
func (r Rate) PerSecond() float64 { return float64(r.Rows) / r.Duration.Seconds() }

// PerRow is bytes per row.
func (r Rate) PerRow() float64 { return float64(r.Bytes) / float64(r.Rows) }

// batchRows is how many rows a recorder gathers.
const batchRows = 1 << 15

// counter counts what is written.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// Write writes rows to nowhere on one thread, until there are so many: making rows of what a recorder has, packing
// them, and the footer.
func Write(s Source, schema table.Schema, rows int64) (Rate, error) {
	var to counter
	began := time.Now()
	n, err := write(&to, s, schema, rows)
	return Rate{n, to.n, time.Since(began)}, err
}

func write(to io.Writer, s Source, schema table.Schema, rows int64) (n int64, err error) {
	out, err := table.NewParquet(to, schema)
	if err != nil {
		return 0, err
	}
	b := table.NewBatch(schema)
	for n < rows {
		b.Reset()
		for b.Rows() < batchRows {
			if err := s.Append(b); err != nil {
				return n, err
			}
		}
		if err := out.Append(b); err != nil {
			return n, err
		}
		n += int64(b.Rows())
	}
	return n, out.Close()
}

// File is a table in memory.
func File(s Source, schema table.Schema, rows int64) ([]byte, error) {
	var b bytes.Buffer
	_, err := write(&b, s, schema, rows)
	return b.Bytes(), err
}

// Read reads the columns of an analysis with so many workers, and adds them up.
func Read(file []byte, workers int) (Rate, error) {
	began := time.Now()
	r, err := table.NewReader(bytes.NewReader(file))
	if err != nil {
		return Rate{}, err
	}
	scan, err := table.NewScan([]*table.Reader{r}, Analysis, table.ScanOptions{Workers: workers})
	if err != nil {
		return Rate{}, err
	}
	defer scan.Close()
	var n, sum int64
	for {
		rows, err := scan.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return Rate{}, err
		}
		for _, v := range rows.Columns[3].Ints {
			sum += v
		}
		n += int64(rows.N)
	}
	_ = sum
	return Rate{n, int64(len(file)), time.Since(began)}, nil
}
