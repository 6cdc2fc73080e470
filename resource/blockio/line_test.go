package blockio

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/llamatap/llamatap/resource"
)

var update = flag.Bool("update", false, "write the golden files")

// sample is an interval of a disk with a partition, on which two processes of one group were at work, and of a disk
// that is given up.
func ptr[T any](v T) *T { return &v }

func sample() *interval {
	const disk, part = 8 << 20, 8<<20 | 1
	of := func(device, op, tgid uint32, comm string, index int, d delta) share {
		return share{row{state: ready, op: op, device: device, disk: uint32(index), tgid: tgid, cgroup: 77, comm: comm,
			hasGroup: tgid != 0}, d}
	}
	read := delta{bytes: 3 * 4096, serviceNS: 500_000, queueNS: 9000}
	read.latency[1][7], read.latency[1][8], read.queue[2] = 2, 1, 3
	write := delta{bytes: 1 << 21, serviceNS: 9_000_000, merges: 4, requeues: 1, errors: 1, inflight: 2, waiting: 1}
	write.latency[7][14], write.queue[1] = 1, 1
	flush := delta{serviceNS: 3_000_000}
	flush.latency[0][12] = 1
	empty := delta{unissued: 1, unissuedNS: 3_100_000}
	return &interval{
		shares: []share{
			of(part, 0, 300, "llama-cli", 1, read), of(disk, 1, 300, "llama-cli", 1, write),
			of(disk, 3, 0, "", 1, flush),
			of(part, 1, 301, "jbd2/sda1-8", 1, empty), of(9<<20, 0, 300, "llama-cli", 2, delta{untimed: 1, bytes: 512}),
			of(part, 2, 300, "llama-cli", 1, delta{}),
		},
		depths: map[int]depth{1: {id: disk, most: 5, mean: ptr(1.25)}, 2: {id: 9 << 20, most: 1, mean: ptr(0.5)}},
		device: func(id uint32) device {
			return device{id: id, name: map[uint32]string{disk: "sda", part: "sda1", 9 << 20: "dm-0"}[id],
				alias: map[uint32]string{9 << 20: "vg-models"}[id]}
		},
		group: func(id uint64) string { return fmt.Sprintf("/group%d", id) },
	}
}

// TestLine: a line's keys are those of A, and of the words.
func TestLine(t *testing.T) {
	line := &resource.BlockLine{HostHeader: resource.NewHostHeader(time.Unix(1700000000, 250e6), 5e9, 5*time.Second,
		5001*time.Millisecond, resource.OriginBPF)}
	sample().fill(line)
	got, err := json.MarshalIndent(line, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/line.json"
	if *update {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(got)+"\n" != string(want) {
		t.Errorf("%v; the line is not that of %s (written with -update):\n%s", err, file, got)
	}
}

// TestStrap: A's bounds stand in A's histogram and nowhere else.
func TestStrap(t *testing.T) {
	iv, line := sample(), &resource.BlockLine{}
	iv.strap = true
	iv.fill(line)
	if b := line.Latency[0].Buckets[0]; b != (resource.Bucket{Slot: 7, Count: 2, Low: 128, High: 255}) {
		t.Errorf("A's bucket %+v", b)
	}
	if b := line.Devices[0].Ops[0].Latency[0]; b != (resource.Bucket{Slot: 7, Count: 2, Low: 64, High: 127}) {
		t.Errorf("bucket %+v", b)
	}
}
