package host

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/resource"
)

func some[T any](v T) *T { return &v }

// TestOperations reads lines as llamatap's own recorder writes them: a disk with a partition, and one that was polled.
func TestOperations(t *testing.T) {
	begin := time.Unix(1790000000, 0)
	var text strings.Builder
	for i := range 2 {
		latency := []resource.Bucket{{Slot: 4, Count: 6, Low: 8, High: 15}, {Slot: 7, Count: 2, Low: 64, High: 127}}
		read := resource.BlockOp{Op: resource.BlockRead, Latency: latency,
			BlockFigures: resource.BlockFigures{Requests: 8, Bytes: 8 * 4096, ServiceNS: some(uint64(160_000)),
				QueueNS: some(uint64(8_000)), Merges: some(uint64(3))}}
		write := resource.BlockOp{Op: resource.BlockWrite, BlockFigures: resource.BlockFigures{Requests: 1, Bytes: 512,
			Errors: some(uint64(1))}}
		line := resource.BlockLine{
			HostHeader: resource.NewHostHeader(begin.Add(time.Duration(i)*time.Second), 0, time.Second, 2*time.Second,
				resource.OriginBPF),
			Latency:  []resource.DeviceLatency{{DeviceID: 16, Name: "sda", Total: 8, Buckets: latency}},
			Inflight: []resource.DeviceInflight{{DeviceID: 16, Name: "sda", Count: 1}},
			Devices: []resource.BlockDevice{
				{DeviceID: 16, Name: "sda", Alias: "/a/very/long/path/of/a/file.img",
					BlockFigures: resource.BlockFigures{Requests: 9}, DepthMax: some(int64(4 + i)),
					DepthMean: some(0.5 + float64(i)), Ops: []resource.BlockOp{read, write}},
				{DeviceID: 17, Name: "sda1", PartOf: some(uint32(16)), BlockFigures: resource.BlockFigures{Requests: 8},
					Ops: []resource.BlockOp{read}},
				{DeviceID: 32, Name: "sdb", BlockFigures: resource.BlockFigures{Requests: 5}},
			},
			Processes: []resource.BlockProcess{{PID: 7, Comm: "llama-cli", DeviceID: 16, BlockOp: read},
				{PID: 7, Comm: "llama-cli", DeviceID: 16, BlockOp: write}},
			Cgroups: []resource.BlockCgroup{{CgroupID: 1, Path: "/x", DeviceID: 16, BlockOp: read}},
			Lost:    resource.BlockLosses{Orphans: 2},
		}
		js, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(js, '\n'))
	}
	r := analyzed(t, Options{Block: put(t, t.TempDir(), "b", text.String())})
	a, b := r.Devices[0], r.Devices[1]
	if len(r.Devices) != 2 || a.Requests != 16 || *a.PerSecond != 4 || a.Queue.Max != 1 || *a.Queue.WithinMax != 5 ||
		*a.Queue.WithinMean != 1 || b.Requests != 10 || b.Name != "sdb" {
		t.Errorf("%+v %+v; %+v", a, a.Queue, b)
	}
	var names []string
	for _, o := range r.Operations {
		names = append(names, o.Device+" "+o.Op)
	}
	if got := strings.Join(names, ", "); got != "sda read, sda write, sda1 read" {
		t.Error(got)
	}
	if o := r.Operations[0]; o.Requests != 16 || o.Bytes != 65536 || *o.ServiceUS != 20 || *o.QueueUS != 1 ||
		o.Merges != 6 || o.Percentiles[0].AtMostUS != 15 || o.Percentiles[2].AtMostUS != 127 {
		t.Errorf("%+v", o)
	}
	if p := r.Processes[0]; len(r.Processes) != 1 || p.Requests != 18 || p.Errors != 2 || p.Comm != "llama-cli" ||
		*p.ServiceUS != 20 {
		t.Errorf("%+v", p)
	}
	if c := r.Cgroups[0]; c.Cgroup != "/x" || c.Requests != 16 {
		t.Errorf("%+v", c)
	}
	var out strings.Builder
	if err := r.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"sda (…", "  sda1", "by control group", "llama-cli", "orphans 4", "64.0 KiB",
		"4.00 KiB"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}
