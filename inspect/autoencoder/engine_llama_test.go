//go:build llama

package autoencoder

import "github.com/llamatap/llamatap/cgo/vector"

func init() {
	if kernel, err := vector.New(); err == nil {
		testEngine = kernel
	}
}
