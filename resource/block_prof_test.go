package resource

import (
	"encoding/json"
	"testing"
)

func TestBlockDisks(t *testing.T) {
	parent := uint32(8 << 20)
	two, mean, untimed := int64(2), 0.5, uint64(1)
	part := BlockFigures{Requests: 3, Bytes: 12288}
	line := BlockLine{HostHeader: HostHeader{ActualS: 2, Origin: OriginBPF}, Devices: []BlockDevice{
		{DeviceID: parent, Name: "sda", DepthMax: &two, DepthMean: &mean,
			BlockFigures: BlockFigures{Requests: 100, Bytes: 409600, Untimed: &untimed}, Ops: []BlockOp{
				{Op: BlockRead, BlockFigures: BlockFigures{Requests: 98, Bytes: 401408},
					Latency: []Bucket{{Slot: 4, Count: 98}}, Queue: []Bucket{{Slot: 1, Count: 98}}},
				{Op: BlockWrite, BlockFigures: BlockFigures{Requests: 2, Bytes: 8192},
					Latency: []Bucket{{Slot: 10, Count: 2}}},
			}},
		{DeviceID: parent | 1, Name: "sda1", PartOf: &parent, BlockFigures: part},
		{DeviceID: parent | 16, Name: "sdb", BlockFigures: BlockFigures{Requests: 0}},
	}}
	got, err := json.Marshal(line.Disks())
	if err != nil {
		t.Fatal(err)
	}
	var events []map[string]any
	if err := json.Unmarshal(got, &events); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{
		{
			"dev": "sda", "iops": 50.5, "throughput_bytes_s": 204800.0, "lat_p50_us": 15.0, "lat_p95_us": 15.0,
			"lat_p99_us": 1023.0, "queue_p99_us": 1.0,
			"queue_depth_avg": 0.5, "queue_depth_max": 2.0, "requests": 101.0, "bytes": 409600.0, "reads": 98.0,
			"writes":     2.0,
			"read_bytes": 401408.0, "write_bytes": 8192.0, "type": "disk", "origin": "bpf",
		},
		{"dev": "sdb", "iops": 0.0, "requests": 0.0, "lat_p50_us": nil, "queue_depth_max": nil},
	}
	if len(events) != len(want) {
		t.Fatalf("%s", got)
	}
	for i := range want {
		for key, value := range want[i] {
			if events[i][key] != value {
				t.Errorf("%s: %s is %v, want %v", want[i]["dev"], key, events[i][key], value)
			}
		}
	}
}
