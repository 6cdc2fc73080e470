package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// planned is a plan of three tests in two rounds.
func planned(t *testing.T) *Plan {
	t.Helper()
	plan, err := NewPlan([]Scenario{{Settings: Settings{Threads: Numbers{1}},
		Prompts: []Prompt{{Length: 8}, {Gen: 4}, {Length: 8, Gen: 4}}}}, Pace{Repetitions: 4, Rounds: 2, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// fake conducts without a model: visits are recorded, and fail where the test says so.
func fake(plan *Plan, fails func(*Item) error) (*Conductor, *[]string) {
	var visited []string
	return &Conductor{Plan: plan, Progress: func(int, int, string) {},
		visit: func(_ context.Context, item *Item, seed uint64, _ string) (Visit, error) {
			visited = append(visited, fmt.Sprintf("%s seed %d", item.label(), seed))
			v := Visit{Subject: Subject{Type: "x", Prompt: item.Spec.Prompt}}
			for range item.Spec.Repetitions {
				v.Repetitions = append(v.Repetitions,
					Repetition{Time: "t", NS: 1e6, Steps: []Step{{Phase: PhaseDecode, NS: 5}}})
			}
			if fails != nil {
				return v, fails(item)
			}
			return v, nil
		}}, &visited
}

// TestConduct visits every test once per round, each round in its own order, which the seed decides.
func TestConduct(t *testing.T) {
	plan := planned(t)
	c, visited := fake(plan, nil)
	visits, failures, err := c.Run(t.Context(), nil)
	if err != nil || len(failures) != 0 || len(visits) != 6 {
		t.Fatalf("%d visits, %v, %v", len(visits), failures, err)
	}
	for round := range 2 {
		seen := slices.Sorted(slices.Values((*visited)[3*round : 3*round+3]))
		if want := fmt.Sprintf("[pp8 seed %[1]d pp8+tg4 seed %[1]d tg4 seed %[1]d]",
			3+round); fmt.Sprint(seen) != want {
			t.Errorf("round %d: %q", round, seen)
		}
	}
	orders := map[string]bool{}
	for round := range 50 {
		orders[fmt.Sprint(plan.order(round))] = true
	}
	if len(orders) != 6 || !slices.Equal(plan.order(7), plan.order(7)) {
		t.Errorf("orders: %v", orders)
	}
	rows := Rows(plan, visits, nil)
	if len(rows) != 3 || len(rows[0].SamplesNS) != 4 || !slices.Equal(rows[0].Rounds, []int{0, 0, 1, 1}) ||
		rows[0].Test() != "pp8" {
		t.Errorf("%+v", rows)
	}
}

// TestConductFailure continues with the other tests.
func TestConductFailure(t *testing.T) {
	c, visited := fake(planned(t), func(i *Item) error {
		if i.Spec.Prompt == 0 {
			return errors.New("no")
		}
		return nil
	})
	visits, failures, err := c.Run(t.Context(), nil)
	if err != nil || len(visits) != 4 || len(*visited) != 5 || len(failures) != 1 ||
		failures[0].Error() != "tg4: no" {
		t.Errorf("%d visits, %q, %v, %v", len(visits), *visited, failures, err)
	}
}

// TestResume stops in the middle, cuts a line as a crash would, and goes on: in the end everything was visited once.
func TestResume(t *testing.T) {
	plan := planned(t)
	path := filepath.Join(t.TempDir(), "results")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	count := 0
	c, _ := fake(plan, func(*Item) error {
		if count++; count == 4 {
			cancel(why)
		}
		return nil
	})
	var err error
	if c.Log, err = CreateLog(path, plan, &Environment{CPU: "x"}); err != nil {
		t.Fatal(err)
	}
	if visits, _, err := c.Run(ctx, nil); !errors.Is(err, why) || len(visits) != 3 {
		t.Fatalf("%d visits, %v", len(visits), err)
	}
	c.Log.Close()
	if _, err := CreateLog(path, plan, nil); err == nil {
		t.Error("a result file is overwritten")
	}
	tear(t, path)
	log, environment, done, err := ResumeLog(path, plan)
	if err != nil || len(done) != 3 || environment.CPU != "x" {
		t.Fatalf("%d visits, %+v, %v", len(done), environment, err)
	}
	again, visited := fake(plan, nil)
	again.Log = log
	visits, _, err := again.Run(t.Context(), done)
	log.Close()
	if err != nil || len(visits) != 6 || len(*visited) != 3 {
		t.Errorf("%d visits in all, %d now, %v", len(visits), len(*visited), err)
	}
	if _, _, all, err := ResumeLog(path, plan); err != nil || len(all) != 6 {
		t.Errorf("%d visits in the file, %v", len(all), err)
	}
	other := planned(t)
	other.Items[0].Spec.Threads = 2
	if _, _, _, err := ResumeLog(path, other); err == nil || !strings.Contains(err.Error(), "are others") {
		t.Errorf("another plan: %v", err)
	}
}

// tear appends half a line.
func tear(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(data, `{"visit":{"item":`...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestResumeRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results")
	for _, text := range []string{"", "{}\n", `{"llamatap_bench":9,"plan":{}}` + "\n",
		`{"llamatap_bench":1,"plan":{"items":[]}}` + "\n" + `{"visit":{"item":3}}` + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := ResumeLog(path, planned(t)); err == nil {
			t.Errorf("%q is resumed", text)
		}
	}
}

// TestTokenRows writes the steps to a file of their own, and not to the result file.
func TestTokenRows(t *testing.T) {
	c, _ := fake(planned(t), nil)
	var out bytes.Buffer
	c.Tokens = &out
	visits, _, err := c.Run(t.Context(), nil)
	if err != nil || visits[0].Repetitions[0].Steps != nil {
		t.Fatalf("%+v, %v", visits[0], err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var row map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &row); err != nil || len(lines) != 12 || row["phase"] != "decode" ||
		row["ns"] != 5.0 {
		t.Errorf("%d lines, %v, %v", len(lines), row, err)
	}
	for _, absent := range []string{"kv_cells", "minor_faults", "major_faults", "prompt_name", "n_seq"} {
		if _, there := row[absent]; there {
			t.Errorf("%s is not known and stands in %v", absent, row)
		}
	}
	c.Plan.Items[visits[0].Item].Spec.Sequences = 4 // of two tests that are called the same
	visits[0].Repetitions[0].Steps = []Step{{}}
	if rows := tokenRows(c.Plan, &visits[0]); rows[0].Sequences == nil || *rows[0].Sequences != 4 {
		t.Errorf("a test of four sequences: %+v", rows[0])
	}
}
