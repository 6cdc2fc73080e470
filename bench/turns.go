package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/llamatap/llamatap/config"
)

// turnTokens is the length of a turn, and turnsPerRun their number in a run: recorded and unrecorded ones alternate.
const (
	turnTokens  = 16
	turnsPerRun = 21
)

// An alternation is a recording that is compared inside of one process. Tensors are not: the collector writes those
// of one turn in the next.
type alternation struct {
	name    string
	atLeast float64
	flag    string
}

var alternated = []alternation{
	{"(g) events at MINIMAL", 0.995, "--tap-resource-level=MINIMAL"},
	{"(g) events at DETAILED", 0.97, "--tap-resource-level=DETAILED"},
	{"(i) ledger, every access", 0.995, "--tap-ledger=rows"},
	{"(i) ledger in windows", 0.995, "--tap-ledger=windows"},
}

func (a *alternation) row() string { return a.name + " / off, decode, alternated in one process" }

// alternated compares a recorded model with the same unrecorded, in one process, where recording stops and
// starts every turnTokens tokens. Pairs of processes differ by where their memory lies and by when they run,
// which is more than most of this costs. What it does not see is what the collector does later than the model: that
// is in its processor time, which metadata.json contains.
func (t Tap) alternated(ctx context.Context) error {
	model := t.Model
	model.Tokens, model.Context = turnTokens*turnsPerRun+2, 1024
	for _, c := range alternated {
		name := c.row()
		if !t.wants(name) {
			continue
		}
		gate := Gate{Name: name, AtLeast: c.atLeast}
		var ratios []float64
		var ratio Interval
		end := time.Now().Add(t.Limits.Time)
		for len(ratios) < t.Limits.MinPairs || gate.judge(ratio) == Unresolved && time.Now().Before(end) {
			s, err := model.run(ctx, []string{c.flag}, func(cmd *exec.Cmd, _ string) (func(), error) {
				cmd.Env = append(os.Environ(), config.TurnsVariable+"="+strconv.Itoa(turnTokens))
				return func() {}, nil
			})
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				return err
			}
			var turns []time.Duration
			if err := json.Unmarshal(s.Recorded.Extra["turns_ns"], &turns); err != nil || len(turns) < 3 {
				return fmt.Errorf("%s: the run ended after %d of %d turns of %d tokens: prompt and turns must fit "+
					"into a context of %d tokens; give a shorter --prompt", name, len(turns), turnsPerRun, turnTokens,
					model.Context)
			}
			ratios = append(ratios, turnRatios(turns)...)
			ratio = medianInterval(ratios)
			t.Progress(fmt.Sprintf("%s: %v", name, ratio))
		}
		t.gate(&gate, ratio)
	}
	return nil
}

// turnRatios takes how long a token of each turn took, and compares each turn that was not recorded, which is every
// second one, with the mean of those before and after it: how fast the recorded ones are, of its speed. What
// becomes slower or faster with time, as a growing context does, is even in that.
func turnRatios(turns []time.Duration) (ratios []float64) {
	for i := 1; i+1 < len(turns); i += 2 {
		ratios = append(ratios, 2*float64(turns[i])/float64(turns[i-1]+turns[i+1]))
	}
	return ratios
}
