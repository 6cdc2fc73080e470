package memtrace

import (
	"errors"
	"strings"
	"testing"
)

const maps = `00400000-00500000 r-xp 00000000 08:02 173521                             /usr/bin/my program
00700000-00701000 rw-p 00000000 00:00 0                                  [heap]
7f0000000000-7f0000100000 r--s 00002000 08:02 1234                       /models/m.gguf
7f0000200000-7f0000201000 rw-p 00000000 00:00 0 
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
7ffc00030000-7ffc00031000 r--p 00005000 08:02 77                         /lib/x.so (deleted)
`

func parse(t *testing.T, text string) []Mapping {
	t.Helper()
	all, err := ParseMaps(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestMappings: addresses without a buffer are named by what the kernel says of them, at the time it did; a buffer
// hides the mapping that it lies in.
func TestMappings(t *testing.T) {
	all := parse(t, maps)
	if want := (Mapping{0x7f0000000000, 0x7f0000100000, "r--s", 0x2000, 1234, "/models/m.gguf", false}); len(
		all) != 6 || all[2] != want || all[0].Path != "/usr/bin/my program" || all[3].Path != "" {
		t.Fatalf("%+v", all)
	}
	m := NewRegionMap()
	m.AddBuffer(Buffer{ID: 1, Base: 0x7f0000000040, Size: 0x1000, Host: true, Mapped: true, Usage: UsageWeights,
		From: 5})
	m.SetMappings(10, all)
	m.SetMappings(20, all[2:])
	m.SetMappings(30, all)
	for _, c := range []struct {
		addr uint64
		ns   int64
		kind RegionType
		name string
	}{
		{0x400010, 15, Code, "/usr/bin/my program"}, {0x400010, 25, Other, ""},
		{0x400010, 35, Code, "/usr/bin/my program"}, {0x400010, 9, Other, ""},
		{0x700fff, 15, Runtime, "[heap]"}, {0x701000, 15, Other, ""}, {0x7f0000200001, 25, Runtime, "[anonymous]"},
		{0x7ffc00000010, 25, Stack, "[stack]"},
		{0x7f0000000040, 15, Weight, "unnamed buffer 1"}, {0x7f0000000039, 15, Other, "/models/m.gguf"},
		{0x7f0000001040, 15, Other, "/models/m.gguf"},
		{0x7f0000000040, 4, Other, ""}, {0x7ffc00030000, 15, Other, "/lib/x.so (deleted)"},
	} {
		h := m.Address(c.addr, c.ns)
		if h.Type() != c.kind || (h.Region == nil) != (c.name == "") || h.Region != nil && h.Region.Name != c.name {
			t.Errorf("%+v: %+v", c, h.Region)
		}
	}
	if n := len(m.Regions()); n != 1+6+2 { // what went and came again is two
		t.Errorf("%d regions", n)
	}
}

func TestMapsThatAreNone(t *testing.T) {
	for _, text := range []string{"x", "1-2 r-xp 0 08:02", "2-1 r-xp 0 08:02 1", "1-2 r-x 0 08:02 1",
		"1-2 r-xp z 08:02 1", "1-2 r-xp 0 08:02 q", "1-5 r-xp 0 08:02 1\n3-6 r-xp 0 08:02 1"} {
		if _, err := ParseMaps(strings.NewReader(text)); !errors.Is(err, ErrMaps) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzParseMaps: whatever comes, mappings are in order.
func FuzzParseMaps(f *testing.F) {
	f.Add(maps)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ParseMaps(strings.NewReader(text))
		for i := range all {
			if err == nil && (all[i].Start >= all[i].End || i > 0 && all[i].Start < all[i-1].End) {
				t.Errorf("%q: %+v", text, all)
			}
		}
	})
}
