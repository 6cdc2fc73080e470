//go:build llama

package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"strings"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/runner"
)

// Continue a text with the embedded model.
func ExampleRun() {
	cfg := config.NewRun()
	cfg.Prompt, cfg.Predict, cfg.Temperature, cfg.Threads = "func main() {", 4, 0, 1
	var text strings.Builder
	result, err := runner.Run(context.Background(), runner.Options{Config: cfg, Stdout: &text})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q, %d tokens behind %d, %s\n", text.String(), result.Tokens, result.PromptTokens, result.Finish)
	// Output: "\n\t// S", 4 tokens behind 6, length
}

// Complete several prompts, two at a time.
func ExampleRunPrompts() {
	cfg := config.NewRun()
	cfg.PromptsFile, cfg.Parallel, cfg.Threads, cfg.Temperature = "-", 2, 1, 0
	lines := strings.NewReader(`{"id":"a","prompt":"func main() {","n_predict":4}
{"id":"b","prompt":"package ","n_predict":2}`)
	var results bytes.Buffer
	if _, err := runner.RunPrompts(context.Background(),
		runner.Options{Config: cfg, Stdin: lines, Stdout: &results}); err != nil {
		log.Fatal(err)
	}
	for decoder := json.NewDecoder(&results); decoder.More(); {
		var answer runner.Answer
		if err := decoder.Decode(&answer); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %q %s\n", answer.ID, answer.Text, answer.Finish)
	}
	// Output:
	// "a" "\n\t// S" length
	// "b" "\n\n" length
}
