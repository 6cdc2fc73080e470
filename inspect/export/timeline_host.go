package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/llamatap/llamatap/store/rundir"
)

// beside reads the files that are recorded next to the events.
type beside struct{ *reader }

// read reads them: none, where path is a log of events alone.
func (r beside) read(ctx context.Context, path string) error {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return nil
	}
	for _, file := range []func(context.Context, string) error{r.readFaults, r.readSystem, r.readBlock, r.readMoves} {
		if err := file(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// system holds the keys of a snapshot of system metrics that a timeline shows.
type system struct {
	Host     string  `json:"host"`
	MonoNS   int64   `json:"mono_ns"`
	Seconds  float64 `json:"interval_actual_s"`
	Pressure map[string]map[string]struct {
		Total float64 `json:"total"` // µs
	} `json:"pressure"`
	Threads []struct {
		TID      int    `json:"tid"`
		Comm     string `json:"comm"`
		Role     string `json:"role"`
		Lived    int64  `json:"lived_ns"`
		OnCPU    int64  `json:"oncpu_ns"`
		Runnable int64  `json:"runnable_wait_ns"`
		Disk     int64  `json:"blocked_disk_ns"`
	} `json:"threads"`
}

// readSystem hands on what the kernel reports of each interval, in percent of it: pressure, and of each thread that
// was not parked how long it ran, waited for a processor and waited for a disk.
func (r beside) readSystem(ctx context.Context, dir string) error {
	before := map[string]float64{}
	return errors.Join(r.lines(ctx, filepath.Join(dir, rundir.SystemName), func(text []byte) error {
		return r.system(text, before)
	}), r.lines(ctx, filepath.Join(dir, rundir.HostsName), func(text []byte) error {
		return r.system(text, before)
	}))
}

// system hands on a snapshot; where it is another host's, names begin with the host's.
func (r beside) system(text []byte, before map[string]float64) error {
	var s system
	if json.Unmarshal(text, &s) != nil {
		r.result.BadLines++
		return nil
	}
	host := ""
	if s.Host != "" {
		host = s.Host + " "
	}
	var failed error
	percent := func(name string, share float64) {
		failed = errors.Join(failed, r.value(host+name, "%", s.MonoNS, min(100, 100*share)))
	}
	for _, what := range []string{"cpu", "io", "memory"} {
		some, ok := s.Pressure[what]["some"]
		if !ok {
			continue // the line is of another collector of the host
		}
		was, seen := before[host+what]
		before[host+what] = some.Total
		if seen && s.Seconds > 0 {
			percent("pressure: "+what, (some.Total-was)/1e6/s.Seconds)
		}
	}
	for i := range s.Threads {
		t := &s.Threads[i]
		if t.Lived <= 0 || t.Role == "parked" {
			continue
		}
		of := func(what string, ns int64) {
			percent(fmt.Sprintf("thread %d %s: %s", t.TID, t.Comm, what), float64(ns)/float64(t.Lived))
		}
		of("running", t.OnCPU)
		of("waiting for a CPU", t.Runnable)
		of("waiting for a disk", t.Disk)
	}
	return failed
}

// readMoves hands on how many bytes were moved to each device and back until a time.
func (r beside) readMoves(ctx context.Context, dir string) error {
	sums := map[string]float64{}
	return r.lines(ctx, filepath.Join(dir, rundir.MovesName), func(text []byte) error {
		var m struct {
			MonoNS int64   `json:"mono_ns"`
			Host   string  `json:"host"`
			Device string  `json:"device"`
			Op     string  `json:"op"`
			Bytes  float64 `json:"bytes"`
		}
		if json.Unmarshal(text, &m) != nil {
			r.result.BadLines++
			return nil
		}
		name := "to "
		if m.Op == "get" {
			name = "from "
		}
		name += strings.TrimSpace(m.Host + " " + m.Device)
		sums[name] += m.Bytes
		return r.value("moved "+name, "B", m.MonoNS, sums[name])
	})
}

// readBlock hands on how much each disk moved per second.
func (r beside) readBlock(ctx context.Context, dir string) error {
	return r.lines(ctx, filepath.Join(dir, rundir.BlockIOName), func(text []byte) error {
		var s struct {
			MonoNS  int64   `json:"mono_ns"`
			Seconds float64 `json:"interval_actual_s"`
			Devices []struct {
				Name   string  `json:"device_name"`
				PartOf *uint32 `json:"part_of"`
				Ops    []struct {
					Op    string  `json:"op"`
					Bytes float64 `json:"bytes"`
				} `json:"ops"`
			} `json:"devices"`
		}
		if json.Unmarshal(text, &s) != nil || s.Seconds <= 0 {
			r.result.BadLines++
			return nil
		}
		for _, d := range s.Devices {
			if d.PartOf != nil {
				continue // its requests are its disk's
			}
			for _, op := range d.Ops {
				if err := r.value(d.Name+": "+op.Op, "bytes/s", s.MonoNS, op.Bytes/s.Seconds); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
