package track

import (
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/table"
)

// TestRequestUnits: what is measured has its unit.
func TestRequestUnits(t *testing.T) {
	units := map[string]string{"ns": "ns", "ms": "ms", "bytes": "bytes"}
	for _, c := range requestSchema().Columns {
		want := units[c.Name[strings.LastIndexByte(c.Name, '_')+1:]]
		if got, _, _ := strings.Cut(string(c.Unit), " "); got != want || c.Description == "" {
			t.Errorf("%s counts %q, described as %q", c.Name, c.Unit, c.Description)
		}
	}
}

// TestRequestsKilled: when nothing is closed, because the collector was killed, the requests that ended more than 30 s
// before are there.
func TestRequestsKilled(t *testing.T) {
	dir, err := rundir.Create(t.TempDir(), "model", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	to := NewRequestTable(dir, 7)
	to.now = func() time.Time { return now }
	for id := range int64(2) {
		r := kvcache.NewRequest()
		r.ID, r.EndNS, r.End, r.Gaps = id, 100, kvcache.EndLength, []float32{1, 2}
		if err := to.Append(&r); err != nil {
			t.Fatal(err)
		}
		now = now.Add(31 * time.Second)
		if id == 0 {
			if err := to.Settle(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got *table.Table
	for wait := time.Now(); ; time.Sleep(time.Millisecond) { // a part is closed behind the caller's back
		if got, err = table.Open(dir.Path(), rundir.RequestsName); err == nil || time.Since(wait) > time.Minute {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	if got.Rows() != 1 || !got.Cut {
		t.Fatalf("%d rows, cut %v", got.Rows(), got.Cut)
	}
	ends, err := got.Files[0].Column(0, "end_ns")
	if err != nil || ends.Ints[0] != 107 {
		t.Errorf("ended at %v, %v; want 107", ends.Ints, err)
	}
	if task, err := got.Files[0].Column(0, "task"); err != nil || task.Valid[0] {
		t.Errorf("a task that is not known is %v, %v", task, err)
	}
}
