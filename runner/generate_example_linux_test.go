//go:build llama

package runner_test

import (
	"context"
	"fmt"
	"log"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/runner"
)

// Look at what the last layer computes, while the embedded model continues a text.
func ExampleGenerate() {
	cfg := config.NewRun()
	cfg.Prompt, cfg.Predict, cfg.Temperature, cfg.Threads = "func main() {", 3, 0, 1
	result, err := runner.Generate(context.Background(), runner.Options{Config: cfg}, runner.Capture{
		Tensors: []string{"l_out-5"},
		OnTensor: func(t *runner.Tensor) error {
			fmt.Println(t.Name, t.Phase, "token", t.First, "shape", t.Shape[:2], len(t.Values), "values")
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Tokens, "tokens")
	// Output:
	// l_out-5 prefill token 5 shape [256 1] 256 values
	// l_out-5 decode token 6 shape [256 1] 256 values
	// l_out-5 decode token 7 shape [256 1] 256 values
	// 3 tokens
}
