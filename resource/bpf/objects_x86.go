//go:build linux && (386 || amd64)

package bpf

import "embed"

//go:embed objects/*_x86.o
var objects embed.FS

// Processor names the objects of this processor.
const Processor = "x86"
