//go:build llama

package llama_test

import (
	"context"
	"fmt"
	"log"
	"runtime"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/cgo/llama"
)

// Generate a few tokens with the embedded model.
func Example() {
	runtime.LockOSThread() // a context belongs to one thread while it decodes
	defer runtime.UnlockOSThread()
	llama.SetLog(llama.LogError)
	model, err := llama.LoadModelBytes(context.Background(), llamatap.DefaultModelName, llamatap.DefaultModel,
		llama.DefaultModelParams())
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	params := llama.DefaultContextParams()
	params.Threads, params.BatchThreads = 1, 1
	x, err := model.NewContext(params)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Close()
	sampler := llama.NewSampler(model.Vocab())
	sampler.AddGreedy()
	defer sampler.Close()
	batch, err := llama.NewBatch(x.Batch(), 1)
	if err != nil {
		log.Fatal(err)
	}
	defer batch.Close()

	tokens, err := model.Vocab().Tokenize("func main() {", true, true)
	if err != nil {
		log.Fatal(err)
	}
	var text []byte
	for pos := llama.Pos(0); pos < 10; {
		batch.Reset()
		for i, token := range tokens {
			if err := batch.Add(token, pos, i == len(tokens)-1, 0); err != nil {
				log.Fatal(err)
			}
			pos++
		}
		if err := x.Decode(batch); err != nil {
			log.Fatal(err)
		}
		token, err := sampler.Sample(x, -1)
		if err != nil {
			log.Fatal(err)
		}
		text = model.Vocab().AppendPiece(text, token, false)
		tokens = append(tokens[:0], token)
	}
	fmt.Printf("%q\n", text)
	// Output: "\n\t// St"
}
