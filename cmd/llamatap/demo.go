package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
)

const (
	demoPrompt = "// Reverse returns its argument string reversed rune-wise left to right.\nfunc Reverse(s string) " +
		"string {\n"
	demoTokens = "200"
	demoPairs  = 5
)

// demoCommand generates text, captures every layer's activations of every token, and shows what that cost.
func demoCommand() *cli.Command {
	return &cli.Command{
		Name: "demo", Summary: "generate with the embedded model, capture every layer of every token, show the cost",
		Define: func(*cli.Flags) func([]string) error { return runDemo },
	}
}

func runDemo([]string) error {
	present.Printf(
		"Generating %s tokens with the embedded model, capturing every computed tensor of every layer and token.\n\n%s",
		demoTokens, demoPrompt)
	var said bytes.Buffer
	err := demoRun(present.Out, &said, "--tap-preset", "balanced")
	present.Printf("\n\n%s", said.String())
	if err != nil {
		return err
	}
	dir := lastMatch(runPattern, said.String())
	if dir == "" {
		return fmt.Errorf("the run directory is not named in the summary above")
	}
	if err := demoCost(); err != nil {
		return err
	}
	present.Printf("%s", demoNext(os.Args[0], dir))
	return nil
}

// demoNext says what a program of that name can do with the run.
func demoNext(program, dir string) string {
	if strings.ContainsRune(program, ' ') {
		program = "'" + program + "'"
	}
	return fmt.Sprintf(`
Try next:
  %[1]s inspect %[2]s
  %[1]s cat %[2]s --tensor l_out-3 --token 20
  %[1]s run --tap-attention -p 'func main() {' -n 32
`, program, dir)
}

var runPattern = regexp.MustCompile(`(?m)^ +run +(\S.*)$`)

// lastMatch is the last text that the pattern's group matches.
func lastMatch(pattern *regexp.Regexp, text string) string {
	all := pattern.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return ""
	}
	return strings.TrimSpace(all[len(all)-1][1])
}

// demoRun runs this program's run in a process of its own, so that a recording does not lower the priority of the
// others.
func demoRun(stdout, stderr io.Writer, tap ...string) error {
	self, err := llama.Self()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, append([]string{"run", "-p", demoPrompt, "-n", demoTokens, "--temp", "0"}, tap...)...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("llamatap run: %w", err)
	}
	return nil
}

// demoCost measures what the recording costs: runs without and with it in turn, each timed by the model's process.
func demoCost() error {
	out, err := os.MkdirTemp("", "llamatap-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(out)
	var ratios, extra, perToken []float64
	for range demoPairs {
		off, err := demoRate()
		if err != nil {
			return err
		}
		on, err := demoRate("--tap-preset", "balanced", "--tap-out", out)
		if err != nil {
			return err
		}
		ratios = append(ratios, on/off)
		extra = append(extra, 1e6/on-1e6/off)
		perToken = append(perToken, 1e3/off)
	}
	slices.Sort(ratios)
	slices.Sort(extra)
	slices.Sort(perToken)
	if ratios[demoPairs-1] > 1 { // a recording makes nothing faster: other load decides
		present.Printf("\nCost: not measured. In %d pairs of runs generation with the recording was %.2f to %.2f of "+
			"the untraced speed, so other load on this\nmachine hides what it costs. "+
			"Run llamatap demo again on an idle machine.\n", demoPairs, ratios[0], ratios[demoPairs-1])
		return nil
	}
	present.Printf(`
Cost, %d runs without and %d with the recording in turn: generation at %.2f of the untraced speed
(median; %.2f to %.2f), %.0f µs more per token. The embedded model is tiny: untraced it makes a token in %.2f ms, and
every single tensor of it is captured here. A larger model spends that time computing: make bench measures one of 1B.
`, demoPairs, demoPairs, ratios[demoPairs/2], ratios[0], ratios[demoPairs-1], extra[demoPairs/2], perToken[demoPairs/2])
	return nil
}

// demoRate is the generation rate of one run, in tokens per second, as it measured it.
func demoRate(tap ...string) (float64, error) {
	var said bytes.Buffer
	if err := demoRun(io.Discard, &said, tap...); err != nil {
		return 0, fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	}
	_, rate, err := bench.ParseRates(said.Bytes())
	return rate, err
}
