//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/runner"
	"github.com/llamatap/llamatap/runner/session"
	"github.com/llamatap/llamatap/store/stream"
)

// beginAgain decides where the program of a run that is gone on with begins, and tells it.
func beginAgain(cfg *config.Run, tap *config.Tap, kept *stream.Kept, program *exec.Cmd) (session.Start, error) {
	if cfg.PromptsFile == "" || cfg.ResultsFile == "" {
		return session.Start{}, nil
	}
	done, tokens := answered(cfg, tap, kept)
	text, err := json.Marshal(done)
	if err != nil {
		return session.Start{}, err
	}
	if program.Env == nil {
		program.Env = os.Environ()
	}
	program.Env = append(program.Env, fmt.Sprintf("%s=%s", doneVariable, text))
	return session.Start{Tokens: tokens, Idle: true}, nil
}

// answered finds how many prompts of a file need not be computed again: those whose results are in the results file and whose tensors are
// recorded, all of them, but for the last one that is: something must come again, to show that it is the same run. tokens is how many
// tokens they took. One sequence computes one prompt after the other, each from an empty memory;
// with several there is hardly a moment at which none is under way.
func answered(cfg *config.Run, tap *config.Tap, kept *stream.Kept) (done runner.Done, tokens int64) {
	file, err := os.Open(cfg.ResultsFile)
	if err != nil || cfg.Parallel > 1 {
		return done, 0
	}
	defer file.Close()
	a := answering{answers: runner.NewAnswerReader(file), tap: tap}
	for it := range kept.Items() {
		if it.Packet != nil && it.Packet.Phase != ggmlhooks.PhaseSetup && remembers(it.Packet.Name) {
			return runner.Done{}, 0
		}
		if !a.take(it) {
			break
		}
	}
	return a.done, a.tokens
}

// remembers tells whether a tensor shows cells of the memory that no token reads any more. Behind another prompt they are others.
func remembers(name string) bool {
	return strings.HasPrefix(name, "cache_") || strings.HasPrefix(name, "node_") || strings.HasPrefix(name, "kq") && !strings.Contains(name, "soft_max") && !strings.HasPrefix(name, "kqv")
}

// answering goes through a recording and the results beside it.
type answering struct {
	answers *runner.AnswerReader
	tap     *config.Tap
	digest  runner.PromptDigest
	request int32         // that is under way
	rows    []llama.Token // of it
	lines   int           // read
	all     int64         // tokens up to here
	done    runner.Done
	tokens  int64 // up to where it is done
}

// take takes in what comes next in the recording; false: nothing behind it is done.
func (a *answering) take(it stream.Item) bool {
	switch {
	case it.Request != nil:
		if len(a.rows) > 0 && !a.close() {
			return false
		}
		a.request = it.Request.Number
	case it.Execution != nil && it.Execution.Phase != ggmlhooks.PhaseSetup:
		for _, row := range it.Execution.Rows {
			a.rows = append(a.rows, llama.Token(row.Token))
		}
		a.all += int64(len(it.Execution.Rows))
	}
	return true
}

// close ends a request: it is done if there is a result of it that has all of its tokens.
func (a *answering) close() bool {
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
		if *answer.Request != a.request || answer.Finish == runner.FinishInterrupted || !decoded(answer.Completion, rows) {
			return false
		}
		a.digest.Add(rows[:answer.PromptTokens])
		if session.Reachable(a.tap, a.all) {
			a.done = runner.Done{Answers: a.lines, Requests: a.request + 1, Prompts: a.digest.Sum()}
			a.tokens = a.all
		}
		return true
	}
}

// decoded tells whether these tokens were decoded for an answer: the prompt, and all but the last of those that were chosen.
func decoded(c *runner.Completion, rows []llama.Token) bool {
	chosen := c.Tokens[:max(len(c.Tokens)-1, 0)]
	if c.PromptTokens < 0 || len(rows) != c.PromptTokens+len(chosen) {
		return false
	}
	for i, token := range chosen {
		if rows[c.PromptTokens+i] != token {
			return false
		}
	}
	return true
}
