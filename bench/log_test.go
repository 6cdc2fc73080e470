package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// FuzzLog reads any result file: what is accepted has whole lines and can be summarised.
func FuzzLog(f *testing.F) {
	plan := &Plan{Items: []Item{{Spec: Spec{Gen: 2}}}, Rounds: 1}
	var seed bytes.Buffer
	lines := json.NewEncoder(&seed)
	for _, line := range []logLine{{Version: logVersion, Plan: plan},
		{Visit: &Visit{Repetitions: []Repetition{{NS: 5, TokenNS: []int64{2, 3}}}}}} {
		if err := lines.Encode(line); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(seed.String())
	f.Add(seed.String() + `{"visit":`)
	f.Fuzz(func(t *testing.T, text string) {
		head, visits, whole, err := readLog(strings.NewReader(text))
		if err != nil {
			return
		}
		if whole > int64(len(text)) || whole > 0 && text[whole-1] != '\n' {
			t.Errorf("%d of %d bytes are whole", whole, len(text))
		}
		if rows := Rows(head.Plan, visits, head.Environment); len(rows) > len(head.Plan.Items) {
			t.Errorf("%d rows of %d tests", len(rows), len(head.Plan.Items))
		}
	})
}
