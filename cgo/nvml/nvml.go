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

// Read reads how a device is now. before is its sample before this one; the zero value: none. What takes tens of
// milliseconds (PCIe), or stands for NVML's last sample period, is only read with seldom.
func (l *Library) Read(device int, before Sample, seldom bool) (Sample, error) {
	s := C.struct_nvml_sample{until_us: C.uint64_t(before.untilUS)}
	var rare C.int
	if seldom {
		rare = 1
	}
	if status := C.nvml_read(l.c, C.uint(device), rare, &s); status != 0 {
		return Sample{}, fmt.Errorf("read GPU %d: NVML's error %d", device, int(status))
	}
	name := before.Name
	if name == "" {
		var text [96]C.char
		C.nvml_name(l.c, C.uint(device), &text[0], C.uint(len(text)))
		name = C.GoString(&text[0])
	}
	return Sample{
		Name: name, GPUPercent: float64(s.gpu_percent), MemoryPercent: float64(s.memory_percent),
		UtilizationNS: int64(s.utilization_ns), TotalBytes: int64(s.total_bytes), UsedBytes: int64(s.used_bytes),
		SMMHz: int64(s.sm_mhz), MemoryMHz: int64(s.memory_mhz),
		PCIeTxKBPerS: int64(s.pcie_tx_kb_per_s), PCIeRxKBPerS: int64(s.pcie_rx_kb_per_s),
		PowerMW: int64(s.power_mw), EnergyMJ: int64(s.energy_mj), untilUS: uint64(s.until_us),
	}, nil
}
