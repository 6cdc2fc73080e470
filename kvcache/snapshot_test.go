package kvcache

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestLatest: caches that were freed before the newest one was made are none of the latest.
func TestLatest(t *testing.T) {
	s := Snapshot{MadeUnixNS: 20, Caches: []Gauge{{Ctx: 3}},
		Freed: []Gauge{{Ctx: 0, FreedUnixNS: 10}, {Ctx: 1, FreedUnixNS: 15}, {Ctx: 2, FreedUnixNS: 25}}}
	if got := s.Latest(); len(got) != 2 || got[0].Ctx != 3 || got[1].Ctx != 2 || len(s.Freed) != 3 {
		t.Errorf("%+v", got)
	}
}

// What is written of a snapshot is read as it was.
func TestSnapshotInJSON(t *testing.T) {
	s := Snapshot{UnixNS: 7, Caches: []Gauge{{Ctx: 1, Cache: Base, Cells: 32, Used: 3, Free: 29,
		Sequences: []SeqGauge{{Seq: 2, Cells: 3, PosMax: 2, Known: true}}, Whole: true}}}
	s.Lifetime.Add(1500)
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back Snapshot
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, s) {
		t.Errorf("%s is read as %+v, %v", text, back, err)
	}
	var k Kind
	if err := k.UnmarshalText([]byte("attic")); err == nil {
		t.Error("an unknown kind was read")
	}
}
