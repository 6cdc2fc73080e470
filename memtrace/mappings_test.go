package memtrace

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// spelled is what is mapped, a word each: addresses in pages of 16 bytes, the region's number.
func spelled(k *Mappings, ns int64) string {
	var words []string
	for _, p := range k.Live() {
		h := k.m.Address(p.Start, ns)
		words = append(words, fmt.Sprintf("%x-%x:%s#%d", p.Start>>4, p.End>>4, p.Path, h.Region.ID))
	}
	return strings.Join(words, " ")
}

func TestMappingsFollowed(t *testing.T) {
	k := NewMappings(NewRegionMap())
	for _, step := range []struct {
		name string
		do   func(ns int64)
		want string
	}{
		{"a file, as its loader maps it whole",
			func(ns int64) { k.Map(ns, Mapping{0x100, 0x500, "r--p", 0, 7, "/lib", false}) }, "10-50:/lib#0"},
		{"code over a part of it", func(ns int64) { k.Map(ns, Mapping{0x200, 0x300, "r-xp", 0x100, 7, "/lib", false}) },
			"10-20:/lib#1 20-30:/lib#2 30-50:/lib#3"},
		{"nothing new", func(ns int64) { k.Map(ns, Mapping{0x200, 0x300, "r-xp", 0x100, 7, "/lib", false}) },
			"10-20:/lib#1 20-30:/lib#2 30-50:/lib#3"},
		{"a heap", func(ns int64) { k.Map(ns, Mapping{0x800, 0x900, "rw-p", 0, 0, "[heap]", false}) },
			"10-20:/lib#1 20-30:/lib#2 30-50:/lib#3 80-90:[heap]#4"},
		{"that grows", func(ns int64) { k.Map(ns, Mapping{0x800, 0xa00, "rw-p", 0, 0, "[heap]", false}) },
			"10-20:/lib#1 20-30:/lib#2 30-50:/lib#3 80-90:[heap]#4 90-a0:[heap]#5"},
		{"the same, seen as one, and the library is gone but for its code", func(ns int64) {
			k.Look(ns, []Mapping{{0x200, 0x300, "r-xp", 0x100, 7, "/lib", false},
				{0x800, 0xa00, "rw-p", 0, 0, "[heap]", false}})
		}, "20-30:/lib#2 80-90:[heap]#4 90-a0:[heap]#5"},
		{"what nobody reported", func(ns int64) {
			k.Look(ns, []Mapping{{0x200, 0x300, "r-xp", 0x100, 7, "/lib", false},
				{0x7f0, 0xa10, "rw-p", 0, 0, "[heap]", false}})
		}, "20-30:/lib#2 7f-80:[heap]#6 80-90:[heap]#4 90-a0:[heap]#5 a0-a1:[heap]#7"},
		{"another one in the place of a part",
			func(ns int64) { k.Map(ns, Mapping{0x880, 0x980, "rw-p", 0, 0, "", false}) },
			"20-30:/lib#2 7f-80:[heap]#6 80-88:[heap]#8 88-98:#9 98-a0:[heap]#10 a0-a1:[heap]#7"},
		{"nothing at all", func(ns int64) { k.Map(ns, Mapping{0x880, 0x880, "rw-p", 0, 0, "", false}) },
			"20-30:/lib#2 7f-80:[heap]#6 80-88:[heap]#8 88-98:#9 98-a0:[heap]#10 a0-a1:[heap]#7"},
		{"another program", k.Clear, ""},
	} {
		ns := int64(len(k.m.regions) + 10)
		step.do(ns)
		if got := spelled(k, ns); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
	if h := k.m.Address(0x110, 10); h.Region == nil || h.Region.ID != 0 {
		t.Errorf("what was there at first: %+v", h.Region)
	}
	if at := slices.IndexFunc(k.m.Regions(), func(r *Region) bool { return r.To == Forever }); at >= 0 {
		t.Errorf("%+v goes on", k.m.Regions()[at])
	}
}

// BenchmarkMappings maps one thing more beside some thousand, as a process does that loads many libraries.
func BenchmarkMappings(b *testing.B) {
	k := NewMappings(NewRegionMap())
	for i := range uint64(4000) {
		k.Map(1, Mapping{Start: i << 20, End: i<<20 + 4096, Perms: "rw-p"})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := uint64(i%4000)<<20 + 8192
		k.Map(int64(i+2), Mapping{Start: at, End: at + 4096, Perms: "rw-p", Path: "/file", Offset: uint64(i)})
	}
}
