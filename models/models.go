// Package models holds the default model, so that every feature runs on real weights without a download.
//
// MODEL_CARD.md says what it is and train/ how it was made.
package models

import _ "embed"

// DefaultName is the file name of the embedded model.
const DefaultName = "gopher-6m-q8_0.gguf"

// Default is the embedded GGUF file. Callers must not change it.
//
//go:embed gopher-6m-q8_0.gguf
var Default []byte
