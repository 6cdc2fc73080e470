//go:build linux

package bpf

import "embed"

//go:embed objects/*_arm64.o
var objects embed.FS

// Processor names the objects of this processor.
const Processor = "arm64"
