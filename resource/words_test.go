package resource

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestKindNames(t *testing.T) {
	if len(kindNames.All) != int(kindCount) {
		t.Fatalf("%d names for %d kinds", len(kindNames.All), kindCount)
	}
	seen := map[string]bool{}
	for k := range kindCount {
		parsed, err := ParseKind(k.String())
		if err != nil || parsed != k || seen[k.String()] {
			t.Errorf("kind %d is %q: %v %v", k, k, parsed, err)
		}
		seen[k.String()] = true
		if New(k) == nil {
			t.Errorf("%v has no struct", k)
		}
	}
	if _, err := ParseKind("layer"); err == nil || New(kindCount) != nil {
		t.Error("a kind that does not exist was found")
	}
}

func TestLevels(t *testing.T) {
	for _, s := range []string{"minimal", "DETAILED", "Verbose"} {
		l, err := ParseLevel(s)
		if err != nil || !strings.EqualFold(l.String(), s) {
			t.Errorf("%q is %v: %v", s, l, err)
		}
	}
	if _, err := ParseLevel("all"); err == nil || !strings.Contains(err.Error(), "MINIMAL, DETAILED or VERBOSE") {
		t.Errorf("error %v", err)
	}
	var off Level
	if _, err := ParseLevel("off"); err == nil || off.UnmarshalText([]byte("OFF")) != nil || off != Off ||
		Off.Includes(KindGraph) || !Off.Includes(KindLevel) {
		t.Error("off is a level like others")
	}
	for k := range kindCount {
		if Minimal.Includes(k) && !Detailed.Includes(k) || Detailed.Includes(k) && !Verbose.Includes(k) ||
			!Verbose.Includes(k) {
			t.Errorf("%v: a higher level includes less", k)
		}
	}
	if Minimal.Includes(KindLayerEnd) || !Detailed.Includes(KindLayerEnd) || Detailed.Includes(KindSampling) ||
		!Minimal.Includes(KindGraph) {
		t.Error("the table of levels is not as documented")
	}
}

func TestSourcesAreOrdered(t *testing.T) {
	if Estimated >= Computed || Computed >= Measured {
		t.Error("a weaker source is not smaller")
	}
	for s := range Measured + 1 {
		if parsed, err := sourceNames.Parse(s.String()); err != nil || parsed != s {
			t.Errorf("%v: %v %v", s, parsed, err)
		}
	}
}

// TestTimestampForms reads the documented form, the form of LRI's program and that of its sessions.
func TestTimestampForms(t *testing.T) {
	local := time.Date(2025, 11, 21, 10, 15, 0, 123e6, time.Local).UnixMicro()
	for text, want := range map[string]int64{
		`"1732190000123456"`: 1732190000123456, `21816123456`: 21816123456, `"2025-11-21 10:15:00.123"`: local,
	} {
		var got Timestamp
		if err := json.Unmarshal([]byte(text), &got); err != nil || int64(got) != want {
			t.Errorf("%s is %d: %v; want %d", text, got, err, want)
		}
	}
	var bad Timestamp
	if err := json.Unmarshal([]byte(`"yesterday"`), &bad); err == nil {
		t.Error("yesterday was read")
	}
	if text, _ := json.Marshal(Timestamp(5)); string(text) != `"5"` {
		t.Errorf("written as %s", text)
	}
}

func TestDecode(t *testing.T) {
	line := `{"event":"compute_execution","timestamp":"12","unix_ns":12345,"mono_ns":5,"session_id":"s",` +
		`"ctx":0,"source":"computed",` +
		`"sources":{"duration_ns":"measured"},"exec":3,"layer_id":-1,"time_source":"range","flops":10,"new_key":true}`
	event, err := Decode([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	c, ok := event.(*Compute)
	if !ok || c.Exec != 3 || c.LayerID != -1 || *c.FLOPs != 10 || c.BytesRead != nil || c.TimeSource != TimeRange ||
		c.Sources["duration_ns"] != Measured || c.Source != Computed || *c.Ctx != 0 {
		t.Errorf("read as %+v", event)
	}
	for _, bad := range []string{`[]`, `{}`, `{"event":"x"}`, `{"event":"loss","count":"many"}`, `{"event":"loss"`} {
		if _, err := Decode([]byte(bad)); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

// FuzzDecode: what is read of a line is written as a line that reads back the same.
func FuzzDecode(f *testing.F) {
	for _, kind := range Kinds() {
		f.Add([]byte(`{"event":"` + kind + `","timestamp":"5","source":"measured","exec":3,"layer_id":-1}`))
	}
	f.Add([]byte(`{"event":"compute_execution","timestamp":12.5}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		event, err := Decode(line)
		if err != nil {
			return
		}
		once, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(once)
		if err != nil {
			t.Fatalf("%v: %s", err, once)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(once) {
			t.Errorf("%s is read as\n%s (%v)", once, twice, err)
		}
	})
}
