// Package llamatap holds the default model, so that every feature runs on real weights without a download.
// models/MODEL_CARD.md says what it is, and models/train/ how it was made.
//
// Programs begin with package runner, which generates text and passes on tensors. docs/ARCHITECTURE.md lists the
// other packages.
package llamatap

import _ "embed"

// DefaultModelName is the file name of the embedded model.
const DefaultModelName = "gopher-6m-q8_0.gguf"

// DefaultModel is the embedded GGUF file. Callers must not change it.
//
//go:embed models/gopher-6m-q8_0.gguf
var DefaultModel []byte
