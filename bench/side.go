package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/store/rundir"
)

// Sample is what one run of one side measured.
type Sample struct {
	Decode  float64 // generated tokens per second
	Prefill float64 // prompt tokens per second; 0 where the side does not report it
	// Recorded is the metadata of what the run recorded; nil: nothing was.
	Recorded *rundir.Metadata
}

// Side is one of the two configurations of a pair.
type Side struct {
	Name string
	Run  func(ctx context.Context) (Sample, error)
}

// Model is what both sides of every pair run.
type Model struct {
	Path    string
	Dir     string // for recordings, which are removed
	Threads int
	Prompt  string
	Tokens  int // to generate
	Context int // cells of the cache; 0: 512
}

// ratesPattern reads the summary of llamatap run.
var ratesPattern = regexp.MustCompile(
	`prompt [0-9]+ tokens? in [^(]*\(([0-9.]+) tokens/s\), generation [0-9]+ tokens? in [^(]*\(([0-9.]+) tokens/s\)`)

// ParseRates reads the rates that llamatap run prints, in tokens per second.
func ParseRates(stderr []byte) (prefill, decode float64, err error) {
	match := ratesPattern.FindSubmatch(stderr)
	if match == nil {
		return 0, 0, fmt.Errorf("no rates in what the run printed: %s", bytes.TrimSpace(stderr))
	}
	prefill, err = strconv.ParseFloat(string(match[1]), 64)
	if err != nil {
		return 0, 0, err
	}
	decode, err = strconv.ParseFloat(string(match[2]), 64)
	return prefill, decode, err
}

// runChild runs a program to its end.
func runChild(cmd *exec.Cmd) error {
	ended, err := StartChild(cmd)
	if err != nil {
		return err
	}
	return <-ended
}

// run runs a command and returns what it printed, also where it failed.
func run(cmd *exec.Cmd) (stdout, stderr []byte, err error) {
	var outText, errText bytes.Buffer
	cmd.Stdout, cmd.Stderr = &outText, &errText
	if err = runChild(cmd); err != nil {
		err = fmt.Errorf("%s: %w: %s", cmd, err, bytes.TrimSpace(errText.Bytes()))
	}
	return outText.Bytes(), errText.Bytes(), err
}

// Run is llamatap run of this binary, with what tap asks for recorded.
func (m Model) Run(name string, tap ...string) Side {
	return Side{name, func(ctx context.Context) (Sample, error) { return m.run(ctx, tap, nil) }}
}

// run runs this binary once. prepare, unless it is nil, changes the command, which records to the folder out and
// may lose something then, and returns what is to be done behind it.
func (m Model) run(ctx context.Context, tap []string,
	prepare func(cmd *exec.Cmd, out string) (func(), error)) (s Sample, err error) {
	self, err := llama.Self()
	if err != nil {
		return s, err
	}
	args := []string{"run", "-m", m.Path, "-p", m.Prompt, "-n", strconv.Itoa(m.Tokens), "--temp", "0", "--ignore-eos",
		"-c", strconv.Itoa(cmp.Or(m.Context, 512)),
		"-t", strconv.Itoa(m.Threads), "-tb", strconv.Itoa(m.Threads)}
	out := ""
	if len(tap) > 0 {
		var remove func()
		if out, remove, err = workFolder(m.Dir); err != nil {
			return s, err
		}
		defer remove()
		args = append(append(args, tap...), "--tap-out", out)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	if prepare != nil {
		release, err := prepare(cmd, out)
		if err != nil {
			return s, err
		}
		defer release()
	}
	_, stderr, err := run(cmd)
	if err != nil && (prepare == nil || !lossy(ctx, err)) {
		return s, err
	}
	if s.Prefill, s.Decode, err = ParseRates(stderr); err != nil || out == "" {
		return s, err
	}
	s.Recorded, err = readRecorded(out)
	return s, err
}

// readRecorded reads the metadata of the one run directory below a folder.
func readRecorded(out string) (*rundir.Metadata, error) {
	dirs, err := filepath.Glob(filepath.Join(out, "*", "run_*"))
	if err == nil && len(dirs) != 1 {
		err = fmt.Errorf("%d run directories in %s, expected one", len(dirs), out)
	}
	if err != nil {
		return nil, err
	}
	metadata, err := rundir.ReadMetadata(dirs[0])
	if err == nil && metadata.Stopped != nil {
		err = fmt.Errorf("the recording in %s ended early (%s): free room there", out, metadata.Stopped.Cause)
	}
	return &metadata, err
}

// LlamaBench is llama.cpp's llama-bench, started by path, which generates.
func (m Model) LlamaBench(path string) Side {
	return Side{"llama-bench", func(ctx context.Context) (Sample, error) {
		return m.llamaBench(ctx, path, 0, m.Tokens)
	}}
}

// llamaBench measures a prompt or a generation of so many tokens.
func (m Model) llamaBench(ctx context.Context, path string, prompt, generated int) (s Sample, err error) {
	stdout, _, err := run(exec.CommandContext(ctx, path, "-m", m.Path, "-t", strconv.Itoa(m.Threads),
		"-p", strconv.Itoa(prompt), "-n", strconv.Itoa(generated), "-r", "1", "-o", "json"))
	if err != nil {
		return s, err
	}
	var rows []struct {
		Generated int     `json:"n_gen"`
		Rate      float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(stdout, &rows); err != nil {
		return s, fmt.Errorf("read llama-bench's JSON: %w", err)
	}
	for _, row := range rows {
		if row.Generated > 0 {
			s.Decode = row.Rate
		} else {
			s.Prefill = row.Rate
		}
	}
	if s.Decode+s.Prefill == 0 {
		return s, errors.New("llama-bench reported no rate")
	}
	return s, nil
}

// Measure is llamatap bench of this binary: what llama-bench measures, in a measuring process.
func (m Model) Measure() Side {
	return Side{"bench", func(ctx context.Context) (Sample, error) {
		scenario := Scenario{Models: []string{m.Path}, Prompts: []Prompt{{Gen: m.Tokens}},
			Settings: Settings{Threads: Numbers{m.Threads}}}
		plan, err := NewPlan([]Scenario{scenario}, Pace{Repetitions: 1})
		if err != nil {
			return Sample{}, err
		}
		v, err := visit(ctx, &plan.Items[0], 1, m.Dir)
		if err != nil {
			return Sample{}, err
		}
		return Sample{Decode: float64(m.Tokens) * 1e9 / float64(v.Repetitions[0].NS)}, nil
	}}
}

// completionPattern reads the evaluation time of llama-completion --perf.
var completionPattern = regexp.MustCompile(
	`  eval time = +[0-9.]+ ms / +[0-9]+ runs +\( +[0-9.]+ ms per token, +([0-9.]+) tokens per second`)

// llamaCompletion is llama.cpp's llama-completion, started by path. Its rate leaves sampling out.
func (m Model) llamaCompletion(path string) Side {
	return Side{"llama-completion", func(ctx context.Context) (Sample, error) {
		for range 5 { // its log is written by a thread that it does not wait for
			_, stderr, err := run(exec.CommandContext(ctx, path, "-m", m.Path, "-t", strconv.Itoa(m.Threads),
				"-c", "512", "-no-cnv",
				"-p", m.Prompt, "-n", strconv.Itoa(m.Tokens), "--temp", "0", "--ignore-eos", "--perf"))
			if err != nil {
				return Sample{}, err
			}
			if match := completionPattern.FindSubmatch(stderr); match != nil {
				rate, err := strconv.ParseFloat(string(match[1]), 64)
				return Sample{Decode: rate}, err
			}
		}
		return Sample{}, errors.New("llama-completion reported no rate in five runs")
	}}
}
