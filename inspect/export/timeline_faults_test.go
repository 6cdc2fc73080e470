package export

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/rundir"
)

// faultSink notes which requests each fault waited for.
type faultSink struct {
	sink
	faults   []*fault
	requests []*request
}

func (s *faultSink) fault(f *fault) error     { s.faults = append(s.faults, f); return nil }
func (s *faultSink) request(q *request) error { s.requests = append(s.requests, q); return nil }

// TestFaultsAndRequests: a fault leads to the requests that it made, and to those that read its page while it waited,
// and to no others.
func TestFaultsAndRequests(t *testing.T) {
	dir := t.TempDir()
	lines := []string{
		`{"kind":"request","begin_mono_ns":100,"wait_ns":50,"tid":7,` +
			`"file":"/m.gguf","offset":4096,"bytes":8192,"tensor":"a"}`,
		`{"kind":"request","begin_mono_ns":110,"wait_ns":60,"tid":7,"file":"/m.gguf","offset":12288,"bytes":4096}`,
		`{"kind":"request","begin_mono_ns":500,"wait_ns":10,"tid":9,"file":"/m.gguf","offset":0,"bytes":4096}`,
		`{"kind":"read","begin_mono_ns":500,"wait_ns":10,"tid":9,"file":"/m.gguf","offset":0,"bytes":4096}`,
		// made both
		`{"kind":"fault","begin_mono_ns":90,"wait_ns":100,"tid":7,` +
			`"file":"/m.gguf","offset":20000,"tensor":"a","exec":3}`,
		// waits for what another thread asked for
		`{"kind":"fault","begin_mono_ns":120,"wait_ns":20,"tid":8,"file":"/m.gguf","offset":5000}`,
		// another file, another page, later
		`{"kind":"fault","begin_mono_ns":120,"wait_ns":20,"tid":8,"file":"/n.gguf","offset":5000}`,
		`{"kind":"fault","begin_mono_ns":120,"wait_ns":20,"tid":8,"file":"/m.gguf","offset":17000}`,
		`{"kind":"fault","begin_mono_ns":200,"wait_ns":20,"tid":8,"file":"/m.gguf","offset":5000}`,
		`{"kind":"fault","begin_mono_ns":130,"wait_ns":20,"tid":8,"memory":"heap"}`,
	}
	for i := range recentRequests { // the first ones are too long ago then
		lines = append(lines, fmt.Sprintf(`{"kind":"request","begin_mono_ns":%d,"wait_ns":1,"tid":1}`, 1000+i))
	}
	lines = append(lines, `{"kind":"fault","begin_mono_ns":120,"wait_ns":5000,"tid":8,"file":"/m.gguf","offset":5000}`)
	err := os.WriteFile(filepath.Join(dir, rundir.FaultsName), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	s := &faultSink{}
	r := beside{&reader{to: s}}
	if err := r.readFaults(context.Background(), dir); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range s.faults {
		var of []string
		for i, q := range s.requests {
			if slices.ContainsFunc(q.flows, func(flow uint64) bool { return slices.Contains(f.flows, flow) }) {
				of = append(of, fmt.Sprint(i))
			}
		}
		got = append(got, f.place+":"+strings.Join(of, ","))
	}
	want := []string{"a:0,1", "m.gguf:0", "n.gguf:", "m.gguf:", "m.gguf:", "heap:", "m.gguf:"}
	if !slices.Equal(got, want) || r.result.Requests != 3+recentRequests || len(s.requests) != 3+recentRequests ||
		r.result.Faults != 7 {
		t.Errorf("%q, want %q; %+v", got, want, r.result)
	}
	if q := s.requests[0]; q.place != "a" || q.start != 100 || q.end != 150 || q.bytes != 8192 {
		t.Errorf("first request %+v", q)
	}
}
