//go:build llama

package intervene_test

import (
	"context"
	"fmt"
	"log"
	"slices"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/intervene"
)

// A prompt is run with what the residual stream held in another one.
func ExampleEngine_Run() {
	ctx := context.Background()
	e, err := intervene.Open(ctx, intervene.Options{Threads: 1}) // the embedded model
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	prompt := func(text string) []llama.Token {
		tokens, err := e.Vocab().Tokenize(text, true, true)
		if err != nil {
			log.Fatal(err)
		}
		return tokens
	}
	best := func(logits []float32) string {
		token := slices.Index(logits, slices.Max(logits))
		return string(e.Vocab().AppendPiece(nil, llama.Token(token), true))
	}
	clean, corrupt := prompt("if err != nil"), prompt("for i := range")
	site := intervene.Site{Point: ggmlhooks.PointResidPost, Layer: 4, Token: len(clean) - 1, Head: intervene.AllHeads}

	var values []float32
	read := intervene.RunOptions{Observe: []intervene.Site{site}}
	err = e.Run(ctx, clean, []intervene.Trial{nil}, read, func(r *intervene.Result) error {
		fmt.Printf("clean: %q\n", best(r.Control))
		values = r.ControlValue(site)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	patch := []intervene.Trial{{intervene.Edit{Site: site, Values: values}}}
	err = e.Run(ctx, corrupt, patch, intervene.RunOptions{}, func(r *intervene.Result) error {
		fmt.Printf("corrupt: %q, patched: %q\n", best(r.Control), best(r.Logits))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// clean: " {"
	// corrupt: " p", patched: " {"
}
