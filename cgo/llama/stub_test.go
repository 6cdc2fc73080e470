//go:build !llama

package llama

import (
	"context"
	"errors"
	"testing"
)

func TestWithoutLlama(t *testing.T) {
	for name, err := range map[string]error{
		"Installed":      second(Installed()),
		"Init":           Init(),
		"AddRPC":         AddRPC("localhost:1"),
		"LoadBLAS":       LoadBLAS(1),
		"ProductTime":    second(ProductTime("CPU", 0, 1, 1, 1, 0)),
		"LoadModel":      second(LoadModel(context.Background(), "x.gguf", ModelParams{})),
		"LoadModelBytes": second(LoadModelBytes(context.Background(), "x", []byte("x"), ModelParams{})),
		"NewBatch":       second(NewBatch(1, 1)),
		"Tokenize":       second(new(Vocab).Tokenize("x", true, true)),
		"Decode":         new(Context).Decode(nil),
		"Generate":       second(new(Context).Generate(nil, nil, nil, nil, nil)),
		"DecodeEach":     second(new(Context).DecodeEach(nil, nil, nil)),
	} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v does not wrap errors.ErrUnsupported", name, err)
		}
	}
}
