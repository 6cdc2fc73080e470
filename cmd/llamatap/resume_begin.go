//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/runner"
	"github.com/llamatap/llamatap/runner/session"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// passTo puts the settings into the environment of the model's process.
func (m *modelSettings) passTo(program *exec.Cmd) error {
	text, err := json.Marshal(m)
	if err == nil {
		program.Env = append(program.Environ(), fmt.Sprintf("%s=%s", settingsVariable, text))
	}
	return err
}

// resume decides where the program of a resumed run begins.
func (m *modelSettings) resume(cfg *config.Run, tap *config.Tap, kept *stream.Kept, run string) (session.Start, error) {
	if cfg.PromptsFile != "" && cfg.ResultsFile != "" {
		done, tokens := answered(cfg, tap, kept)
		m.Done = &done
		return session.Start{Tokens: tokens, Idle: true}, nil
	}
	if !tap.Checkpoint.State {
		return session.Start{}, nil
	}
	if err := checkState(cfg); err != nil {
		return session.Start{}, err
	}
	folder := filepath.Join(run, rundir.StateFolder)
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return session.Start{}, fmt.Errorf("--tap-checkpoint-state: %w", err)
	}
	state := latestState(folder, tap, kept)
	state.Every, state.Step = tap.Checkpoint.Every, session.Step(tap)
	m.State = &state
	return session.Start{Tokens: state.From}, nil
}

// checkState refuses to keep the state of what cannot be resumed from it. More is refused when the model is known.
func checkState(cfg *config.Run) error {
	switch {
	case cfg.PromptsFile != "":
		return cli.Wrongf(
			"--tap-checkpoint-state is for one prompt: leave it out; prompts of a file that are done are not " +
				"computed again without it")
	case cfg.Embeddings.Embeddings:
		return cli.Wrongf("--tap-checkpoint-state is for generated text: leave it or --embeddings out")
	}
	return nil
}

// keepState lets a new run keep its state. Its folder is one of its own until there is a run directory, into which
// it is moved.
func (m *modelSettings) keepState(cfg *config.Run, tap *config.Tap) (folder string, err error) {
	if err := checkState(cfg); err != nil {
		return "", err
	}
	out, err := filepath.Abs(tap.Out)
	if err == nil {
		err = os.MkdirAll(out, 0o700)
	}
	if err == nil {
		folder, err = rundir.NewStateFolder(out)
	}
	if err != nil {
		return "", fmt.Errorf("--tap-checkpoint-state: %w; choose another folder with --tap-out", err)
	}
	m.State = &runner.State{Folder: folder, Every: tap.Checkpoint.Every, Step: session.Step(tap)}
	return folder, nil
}

// latestState is the latest state in a folder that is whole and of which all tokens are recorded; otherwise the
// beginning.
func latestState(folder string, tap *config.Tap, kept *stream.Kept) runner.State {
	state := runner.State{Folder: folder}
	var rows []llama.Token
	for item := range kept.Items() {
		if e := item.Execution; e != nil && e.Phase != ggmlhooks.PhaseSetup {
			for _, row := range e.Rows {
				rows = append(rows, llama.Token(row.Token))
			}
		}
	}
	for _, tokens := range rundir.States(folder) {
		if tokens > int64(len(rows)) || tokens%session.Step(tap) != 0 {
			continue
		}
		m, err := runner.ReadMoment(folder, tokens)
		if err != nil || m.Prompt < 0 || m.Prompt > len(rows) ||
			!slices.Equal(rows[m.Prompt:tokens], m.Chosen[:len(m.Chosen)-1]) {
			continue // an older one may do
		}
		var digest runner.PromptDigest
		digest.Add(rows[:m.Prompt])
		state.From, state.Prompt = tokens, digest.Sum()
		return state
	}
	return state
}

// answered finds how many prompts of a file need not be computed again: those whose results are in the results file
// and whose tensors are recorded, all of them, but for the last one that is: something must come again, to show
// that it is the same run. tokens is how many tokens they took. One sequence computes one prompt after the other,
// each from an empty memory; with several there is hardly a moment at which none is under way.
func answered(cfg *config.Run, tap *config.Tap, kept *stream.Kept) (done runner.Done, tokens int64) {
	// these are recorded from the beginning
	if cfg.Parallel > 1 || cfg.Packs() || tap.Records(config.Resource) || tap.Records(config.KV) {
		return done, 0
	}
	file, err := os.Open(cfg.ResultsFile)
	if err != nil {
		return done, 0
	}
	defer file.Close()
	a := answerMatcher{answers: runner.NewAnswerReader(file), tap: tap}
	for item := range kept.Items() {
		if p := item.Packet; item.Err != nil || p != nil && p.Phase != ggmlhooks.PhaseSetup && remembers(p.Name) {
			return runner.Done{}, 0
		}
		if !a.append(item) {
			break
		}
	}
	return a.done, a.tokens
}

// remembers reports whether a tensor shows cells of the memory that no token reads any more. After another prompt
// they differ.
func remembers(name string) bool {
	return strings.HasPrefix(name, "cache_") || strings.HasPrefix(name, "node_") || strings.HasPrefix(name, "kq") &&
		!strings.Contains(name, "soft_max") && !strings.HasPrefix(name, "kqv")
}

// answerMatcher goes through a recording and the results of its prompts, request by request.
type answerMatcher struct {
	answers  *runner.AnswerReader
	tap      *config.Tap
	digest   runner.PromptDigest
	request  int32         // that is under way
	rows     []llama.Token // of it
	lines    int           // read
	computed int64         // tokens up to here
	done     runner.Done
	tokens   int64 // up to where it is done
}

// append adds the next item of the recording; it returns false after the last one.
func (a *answerMatcher) append(item stream.Item) bool {
	if item.Execution == nil || item.Execution.Phase == ggmlhooks.PhaseSetup {
		return true
	}
	for _, b := range item.Begun {
		if len(a.rows) > 0 && !a.close() {
			return false
		}
		a.request = b.Number
	}
	for _, row := range item.Execution.Rows {
		a.rows = append(a.rows, llama.Token(row.Token))
	}
	a.computed += int64(len(item.Execution.Rows))
	return true
}

// close ends a request: it is done if there is a result of it that has all of its tokens.
func (a *answerMatcher) close() bool {
	rows := a.rows
	a.rows = a.rows[:0]
	for {
		answer, _, ok := a.answers.Next()
		if !ok {
			return false
		}
		a.lines++
		if answer.Completion == nil || answer.Request == nil {
			continue
		}
		if *answer.Request != a.request || answer.Finish == runner.FinishInterrupted ||
			!decoded(answer.Completion, rows) {
			return false
		}
		a.digest.Add(rows[:answer.PromptTokens])
		if a.computed%session.Step(a.tap) == 0 {
			a.done = runner.Done{Answers: a.lines, Requests: a.request + 1, Prompts: a.digest.Sum()}
			a.tokens = a.computed
		}
		return true
	}
}

// decoded reports whether these tokens were decoded for an answer: the prompt, and all but the last of those that
// were chosen.
func decoded(c *runner.Completion, rows []llama.Token) bool {
	chosen := c.Tokens[:max(len(c.Tokens)-1, 0)]
	return c.PromptTokens >= 0 && c.PromptTokens <= len(rows) && slices.Equal(rows[c.PromptTokens:], chosen)
}
