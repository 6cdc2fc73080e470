package blockio

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/llamatap/llamatap/resource"
)

// machine is a machine with a disk with a partition, a logical volume on both, an NVMe disk and a loop device.
func machine() fstest.MapFS {
	return fstest.MapFS{
		"proc/diskstats": {Data: []byte(`   8       0 sda 100 10 2000 50 40 4 800 20 0 60 70
   8       1 sda1 90 9 1800 45 30 3 600 15 1 50 60 5 0 640 2 7 3
 259       0 nvme0n1 1 0 8 1 0 0 0 0 0 1 1
 253       0 dm-0 5 0 40 9 0 0 0 0 2 9 9
   7       3 loop3 5 0 40 9 0 0 0 0 2 9 9
`)},
		"sys/devices/pci/sda/sda1/partition":   {Data: []byte("1\n")},
		"sys/dev/block/8:1":                    {Data: []byte("../../devices/pci/sda/sda1"), Mode: fs.ModeSymlink},
		"sys/dev/block/253:0/dm/name":          {Data: []byte("vg-models\n")},
		"sys/dev/block/7:3/loop/backing_file":  {Data: []byte("/srv/disk image (deleted)\n")},
		"sys/class/block/dm-0/slaves/sda1":     {},
		"sys/class/block/dm-0/slaves/nvme0n1":  {},
		"sys/class/block/nvme0n1/slaves/.keep": {},
	}
}

func TestNames(t *testing.T) {
	root := machine()
	n := newNames(root)
	for id, want := range map[uint32]device{
		8 << 20:   {name: "sda"},
		8<<20 | 1: {name: "sda1", parent: "sda"},
		253 << 20: {name: "dm-0", alias: "vg-models"},
		7<<20 | 3: {name: "loop3", alias: "/srv/disk image (deleted)"},
		259 << 20: {name: "nvme0n1"},
		1 << 20:   {name: "?"},
	} {
		if want.id = id; n.device(id) != want {
			t.Errorf("%d is %+v, want %+v", id, n.device(id), want)
		}
	}
	root["proc/diskstats"] = &fstest.MapFile{Data: []byte("   8 16 sdb 1 0 8 1 0 0 0 0 0 1 1\n")}
	if got := n.device(8<<20 | 16); got.name != "?" {
		t.Errorf("looked up twice in a snapshot: %+v", got)
	}
	n.beginSnapshot()
	if got := n.device(8<<20 | 16); got.name != "sdb" {
		t.Errorf("new device %+v", got)
	}
	if got := n.device(8 << 20); got.name != "sda" {
		t.Errorf("device that went away %+v", got)
	}
}

func TestFindDevices(t *testing.T) {
	for name, want := range map[string][]uint32{
		"sda": {8 << 20}, "/dev/sda1": {8<<20 | 1}, "nvme0n1": {259 << 20},
		"/dev/mapper/vg-models": {8<<20 | 1, 253 << 20, 259 << 20}, "dm-0": {8<<20 | 1, 253 << 20, 259 << 20},
	} {
		n := newNames(machine())
		delete(n.root.(fstest.MapFS), "sys/class/block/nvme0n1/slaves/.keep")
		got, err := n.find(name)
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
	}
	if _, err := newNames(machine()).find("sdz"); err == nil || !strings.Contains(err.Error(), "cat /proc/diskstats") {
		t.Error(err)
	}
}

func TestDiskstats(t *testing.T) {
	text, _ := fs.ReadFile(machine(), "proc/diskstats")
	before, err := parseDiskstats(strings.NewReader(string(text)))
	if err != nil || len(before) != 5 {
		t.Fatalf("%+v, %v", before, err)
	}
	if d := before[1]; d.ops != 4 || d.done != [4]uint64{90, 30, 5, 7} || d.sectors != [4]uint64{1800, 600, 640} ||
		d.ms != [4]uint64{45, 15, 2, 3} ||
		d.merges != [4]uint64{9, 3, 0} || d.inflight != 1 || d.waitedMS != 60 || before[0].ops != 2 {
		t.Errorf("%+v", d)
	}
	after := slices.Clone(before)
	after[0].done[0] += 10
	after[0].sectors[0] += 80
	after[0].ms[0] += 20
	after[0].waitedMS += 1000
	after[1].done[3]++
	// begun anew
	after[2] = diskstats{id: after[2].id, name: "nvme0n1", ops: 2, done: [4]uint64{0, 1}, sectors: [4]uint64{0, 8}}
	line := &resource.BlockLine{HostHeader: resource.HostHeader{ActualS: 2}}
	polled(line, before, after, newNames(machine()), nil)
	if len(line.Devices) != 5 || len(line.Inflight) != 2 { // two have requests, all the time
		t.Fatalf("%+v", line)
	}
	for _, d := range line.Devices {
		switch d.Name {
		case "sda":
			if d.Requests != 10 || d.Bytes != 40960 || *d.TotalNS != 20e6 || *d.DepthMean != 0.5 || d.PartOf != nil {
				t.Errorf("%+v", d)
			}
		case "sda1":
			if *d.PartOf != 8<<20 || d.Requests != 1 || len(d.Ops) != 1 || d.Ops[0].Op != resource.BlockFlush ||
				d.DepthMean != nil || *d.Inflight != 1 {
				t.Errorf("%+v", d)
			}
		case "nvme0n1":
			if d.Requests != 1 || d.Bytes != 4096 {
				t.Errorf("%+v", d)
			}
		}
	}
	only := &resource.BlockLine{}
	polled(only, before, after, newNames(machine()), map[uint32]bool{8 << 20: true})
	if len(only.Devices) != 2 {
		t.Errorf("of sda and its partition: %+v", only.Devices)
	}
	if _, err := parseDiskstats(strings.NewReader("8 0 sda 1 2 x 4 5 6 7 8 9 10 11\n")); err == nil ||
		!strings.Contains(err.Error(), "sda") {
		t.Error(err)
	}
}

func FuzzDiskstats(f *testing.F) {
	text, _ := fs.ReadFile(machine(), "proc/diskstats")
	f.Add(string(text))
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseDiskstats(strings.NewReader(text))
		if err != nil {
			return
		}
		line := &resource.BlockLine{}
		polled(line, nil, all, newNames(fstest.MapFS{}), nil)
		if len(line.Devices) > len(all) {
			t.Errorf("%d devices of %d", len(line.Devices), len(all))
		}
	})
}
