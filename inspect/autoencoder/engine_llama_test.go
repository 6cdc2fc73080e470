//go:build llama

package autoencoder

import "github.com/llamatap/llamatap/cgo/matrix"

func init() {
	if kernel, err := matrix.New(); err == nil {
		testEngine = kernel
	}
}
