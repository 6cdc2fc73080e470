//go:build llama

package nvml

// #cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra -Werror
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "nvml.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// Library is the opened library. It is for one goroutine at a time.
type Library struct{ c *C.struct_nvml_library }

// Open opens the library by name: [Name], or a file. Close it.
func Open(name string) (*Library, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var why [256]C.char
	c := C.nvml_open(text, &why[0], C.int(len(why)))
	if c == nil {
		return nil, fmt.Errorf("open %s: %s: %w; NVIDIA's driver brings it", name, C.GoString(&why[0]),
			errors.ErrUnsupported)
	}
	return &Library{c}, nil
}

// Close ends the work with the library. It may be called twice.
func (l *Library) Close() error {
	if l.c != nil {
		C.nvml_close(l.c)
		l.c = nil
	}
	return nil
}

// Devices is how many GPUs there are.
func (l *Library) Devices() (int, error) {
	n := int(C.nvml_count(l.c))
	if n < 0 {
		return 0, errors.New("NVML does not say how many devices there are")
	}
	return n, nil
}

// Read reads how a device is now.
func (l *Library) Read(device int) (Sample, error) {
	var s C.struct_nvml_sample
	if status := C.nvml_read(l.c, C.uint(device), &s); status != 0 {
		return Sample{}, fmt.Errorf("read GPU %d: NVML's error %d", device, int(status))
	}
	var name [96]C.char
	C.nvml_name(l.c, C.uint(device), &name[0], C.uint(len(name)))
	sample := Sample{
		Name: C.GoString(&name[0]), GPUPercent: int(s.gpu_percent), MemoryPercent: int(s.memory_percent),
		TotalBytes: uint64(s.total_bytes), UsedBytes: uint64(s.used_bytes),
		PowerMW: -1, EnergyMJ: -1,
	}
	if s.has_power != 0 {
		sample.PowerMW = int64(s.power_mw)
	}
	if s.has_energy != 0 {
		sample.EnergyMJ = int64(s.energy_mj)
	}
	return sample, nil
}
