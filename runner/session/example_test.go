//go:build linux

package session_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/runner"
	"github.com/llamatap/llamatap/runner/session"
)

// Capture one layer of a model that a program of llama.cpp runs, and read it. The collector is this process; the
// model's is a child.
func Example() {
	tap := &config.Tap{}
	if _, err := tap.Parse([]string{"--tap-tensors", "l_out-3", "--tap-out", "runs"}); err != nil {
		log.Fatal(err)
	}
	if err := tap.Resolve(config.ResolveOptions{}); err != nil {
		log.Fatal(err)
	}
	cmd, err := runner.Command("llama-completion", []string{"-m", "model.gguf", "-p", "Hello", "-n", "8", "-no-cnv"})
	if err != nil {
		log.Fatal(err)
	}
	result, err := session.Run(context.Background(),
		session.Options{Tap: tap, Command: cmd, Backends: runner.CommandBackends(cmd), Summary: os.Stderr})
	if err != nil {
		log.Fatal(err)
	}
	run, err := tensors.Open(result.Dir)
	if err != nil {
		log.Fatal(err)
	}
	defer run.Close()
	layer, err := tensors.NewSlice(run, tensors.SliceOptions{Tensor: "l_out-3"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(layer.Shape) // tokens, values per token
}
