//go:build linux

package prof_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/prof"
)

// others is a source of events of other collectors.
func others(time.Time) (func() []resource.ProfEvent, error) {
	mem, disk, sched := &resource.ProfMem{}, &resource.ProfDisk{Dev: "loop0"}, &resource.ProfSched{}
	mem.Type, disk.Type, sched.Type = resource.ProfTypeMem, resource.ProfTypeDisk, resource.ProfTypeSched
	return func() []resource.ProfEvent { return []resource.ProfEvent{sched, mem, disk} }, nil
}

func TestEventsOfOneIntervalAreStampedAlike(t *testing.T) {
	var asked [][2]time.Time
	c, err := prof.Open(prof.Options{
		Types: []resource.ProfType{resource.ProfTypeMem, resource.ProfTypeDisk}, Also: []prof.Source{others},
		Stamper: prof.Stamper{Run: "run_1", Labels: map[string]string{"model": "x"},
			Correlate: func(from, to time.Time) string {
				asked = append(asked, [2]time.Time{from, to})
				if len(asked) == 2 {
					return resource.CorrID{Run: "run_1", Interval: 2, Phase: "decode", Tokens: true, First: 3,
						Last: 5}.String()
				}
				return ""
			}},
	})
	if err != nil {
		t.Fatal(err) // nothing of it needs BPF
	}
	times := []time.Time{time.Unix(1700000001, 0), time.Unix(1700000002, 5000)}
	for i, want := range []string{"run_1-1", "run_1-2-decode-3-5"} {
		got, err := c.Snapshot(times[i])
		if err != nil {
			t.Fatal(err)
		}
		all := bpf.LineOf(got).([]resource.ProfEvent)
		if len(all) != 2 || all[0].Head().Type != resource.ProfTypeDisk || all[1].Head().Type != resource.ProfTypeMem {
			t.Fatalf("events %v", all)
		}
		for _, e := range all {
			h := e.Head()
			if h.CorrID == nil || *h.CorrID != want || h.TSNS != times[i].UnixNano() || h.MonoNS == 0 ||
				h.IntervalS <= 0 || !maps.Equal(h.Labels, map[string]string{"model": "x"}) {
				t.Errorf("%s: %+v, want id %s", h.Type, h, want)
			}
		}
	}
	if len(asked) != 2 || asked[0][1] != times[0] || asked[1] != [2]time.Time(times) {
		t.Errorf("asked for %v", asked)
	}
	if n := c.Origin(); n != resource.OriginProc || c.Close() != nil {
		t.Errorf("origin %s", n)
	}
}

func TestWithoutCorrelationIdsAreNull(t *testing.T) {
	c, err := prof.Open(prof.Options{
		Types: []resource.ProfType{resource.ProfTypeDisk}, Also: []prof.Source{others},
		Stamper: prof.Stamper{Run: "run_1", Uncorrelated: true, Correlate: func(_, _ time.Time) string { return "x" }},
	})
	if err != nil {
		t.Fatal(err)
	}
	if all := snapshot(t, c); len(all) != 1 || all[0].Head().CorrID != nil || all[0].Head().Labels == nil {
		t.Errorf("events %+v", all)
	}
}

func TestASourceThatFailsIsLeftOut(t *testing.T) {
	asked := 0
	c, err := prof.Open(prof.Options{Types: []resource.ProfType{resource.ProfTypeDisk}, Also: []prof.Source{
		func(time.Time) (func() []resource.ProfEvent, error) {
			asked++
			return nil,
				errors.New("disk on fire")
		}, others,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if all := snapshot(t, c); len(all) != 1 {
			t.Errorf("events %+v", all)
		}
	}
	if m := c.Missing(); asked != 1 || len(m) != 1 || !strings.Contains(m[0], "disk on fire") {
		t.Errorf("asked %d times, missing %q", asked, m)
	}
}
