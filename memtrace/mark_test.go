package memtrace

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// TestMarkNames holds which names stand for phases and steps, and which are refused.
func TestMarkNames(t *testing.T) {
	for name, want := range map[string]Mark{
		"loading": {Phase: "weight_load"}, "weight_load": {Phase: "weight_load"}, "generation": {Phase: "generation"},
		"prefill": {Phase: "generation", Step: "prefill"},
		"decode":  {Phase: "generation", Step: "decode"}, "teardown": {Phase: "teardown"}, "warmup": {Phase: "setup"},
		"epoch 2": {}, "Vorwärmen": {},
	} {
		want.Name = name
		if got, err := NewMark(name); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, name := range []string{"", " ", " decode", "a\nb", "\x1b[31m", "\xff", strings.Repeat("x", maxMarkName+1)} {
		if _, err := NewMark(name); !errors.Is(err, ErrMark) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestReadMarks reads what a recorder writes, up to where it was killed, and finds the marker of a time.
func TestReadMarks(t *testing.T) {
	const whole = `{"name":"loading","ts_ns":10,"mono_ns":1,"phase":"weight_load"}` + "\n" +
		`{"name":"own","ts_ns":20,"mono_ns":11}` + "\n"
	marks, err := ReadMarks(strings.NewReader(whole + `{"name":"dec`))
	if err != nil || len(marks) != 2 || marks[1] != (Mark{Name: "own", TimeNS: 20, MonoNS: 11}) {
		t.Fatalf("%+v, %v", marks, err)
	}
	for ns, want := range map[int64]int{9: -1, 10: 0, 19: 0, 20: 1, 1 << 60: 1} {
		if got := MarkAt(marks, ns); got != want {
			t.Errorf("at %d: %d", ns, got)
		}
	}
	for _, text := range []string{
		"{}\n", "x\n", `{"name":"own","ts_ns":1,"phase":"generation"}` + "\n",
		`{"name":"decode","ts_ns":1,"phase":"generation"}` + "\n", whole + whole,
		strings.Repeat("x", maxMarkLine+1) + "\n", strings.Repeat(`{"name":"own","ts_ns":20}`+"\n", MaxMarks+1),
	} {
		if _, err := ReadMarks(strings.NewReader(text)); !errors.Is(err, ErrMark) {
			t.Errorf("%.80q: %v", text, err)
		}
	}
}

func FuzzReadMarks(f *testing.F) {
	f.Add([]byte(`{"name":"decode","ts_ns":1,"mono_ns":2,"phase":"generation","step":"decode"}` + "\n"))
	f.Add([]byte(`{"name":"loading","ts_ns":1,"phase":"weight_load","inferred":true}` + "\n{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		marks, err := ReadMarks(bytes.NewReader(text))
		if err != nil {
			return
		}
		var again bytes.Buffer
		out := json.NewEncoder(&again)
		for i := range marks {
			if err := out.Encode(marks[i]); err != nil {
				t.Fatal(err)
			}
		}
		if back, err := ReadMarks(&again); err != nil || len(back) != len(marks) {
			t.Errorf("%d markers, %d of them again: %v", len(marks), len(back), err)
		}
	})
}
