//go:build llama

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// home is the folder that a build which moves lies in; "" for every other.
var home = takeHome(distRoot)

// installed is where this build's llama.cpp is, also when it was moved.
var installed = Installation{
	LibDir: relocated(home, distRoot, distLibDir), LibPath: relocated(home, distRoot, distLibPath),
	Backends: relocated(home, distRoot, distBackends), Bin: relocated(home, distRoot, distBin),
	Loader: relocated(home, distRoot, distLoader),
}

// Installed returns where this build's llama.cpp is.
func Installed() (Installation, error) {
	return installed, nil
}

// Version is llama.cpp's version.
func Version() string { return C.GoString(C.llama_version()) }

// GGMLVersion is the version of llama.cpp's ggml and the commit that it was built from, as ggml reports it.
func GGMLVersion() (version, commit string) {
	return C.GoString(C.ggml_version()), C.GoString(C.ggml_commit())
}

// Init loads the backends of this build, and no others, and starts llama.cpp, once per process. The error is
// ErrNoBackend.
func Init() error { return initOnce() }

var initOnce = sync.OnceValue(func() error {
	C.bridge_log_init()
	why, stop := collectErrors()
	defer stop()
	var dir *C.char
	if installed.Backends != "" {
		dir = C.CString(installed.Backends)
		defer C.free(unsafe.Pointer(dir))
	}
	if !bool(C.bridge_backends_load(dir)) {
		return why(fmt.Errorf("%w in %q: run 'make build' again, or check LLAMA_PREFIX", ErrNoBackend,
			installed.Backends))
	}
	C.llama_backend_init()
	return nil
})

// SetLog sets how much of llama.cpp's log is written to stderr. Until it is called, that is errors only; an error of a
// call that fails is part of that call's error and not written. It may be called at any time, by one goroutine.
func SetLog(level LogLevel) { C.bridge_log_level(C.int(level)) }

// collectErrors keeps what llama.cpp logs as errors until stop is called; why adds that to an error.
func collectErrors() (why func(error) error, stop func()) {
	C.bridge_log_collect(true)
	return withLog, func() { C.bridge_log_collect(false) }
}

// dropErrors forgets what llama.cpp logged as errors.
func dropErrors() {
	var buf [1]C.char
	C.bridge_log_take(&buf[0], C.size_t(len(buf)))
}

// withLog adds what llama.cpp logged as errors to an error, on one line.
func withLog(err error) error {
	var buf [2049]C.char
	C.bridge_log_take(&buf[0], C.size_t(len(buf)))
	lines := strings.FieldsFunc(C.GoString(&buf[0]), func(r rune) bool { return r == '\n' })
	for i, line := range lines {
		if name, text, found := strings.Cut(line, ": "); found && !strings.Contains(strings.TrimSpace(name), " ") {
			lines[i] = text // llama.cpp puts the function's name first
		}
	}
	if len(lines) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(strings.Join(lines, "; ")))
}

// Devices lists what can compute. Init must have been called.
func Devices() []Device {
	all := make([]Device, C.ggml_backend_dev_count())
	for i := range all {
		all[i] = describe(C.ggml_backend_dev_get(C.size_t(i)))
	}
	return all
}

func describe(dev C.ggml_backend_dev_t) Device {
	var free, total C.size_t
	C.ggml_backend_dev_memory(dev, &free, &total)
	return Device{
		Name:        C.GoString(C.ggml_backend_dev_name(dev)),
		Description: C.GoString(C.ggml_backend_dev_description(dev)),
		Kind:        DeviceKind(C.ggml_backend_dev_type(dev)),
		FreeBytes:   uint64(free),
		TotalBytes:  uint64(total),
	}
}

// AddRPC makes the devices of an RPC server (host:port) usable. Init must have been called. It blocks for at most a few
// seconds; a server that is not there is ErrDevice.
func AddRPC(endpoint string) error {
	conn, err := net.DialTimeout("tcp", endpoint, 5*time.Second) // llama.cpp aborts where there is no server
	if err != nil {
		return fmt.Errorf("%w: no RPC server at %s (%w): start ggml-rpc-server there, or correct the address",
			ErrDevice, endpoint, plainNetError(err))
	}
	conn.Close()
	name := C.CString(endpoint)
	defer C.free(unsafe.Pointer(name))
	var path *C.char
	if file := optionalBackend("rpc"); file != "" {
		path = C.CString(file)
		defer C.free(unsafe.Pointer(path))
	}
	switch C.bridge_rpc_add(path, name) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("this llama.cpp has no RPC backend: %w: build llama.cpp with -DGGML_RPC=ON and use make "+
			"LLAMA_PREFIX=…", errors.ErrUnsupported)
	}
	return fmt.Errorf("%w: %s does not answer as an RPC server of llama.cpp %s", ErrDevice, endpoint, Version())
}

// plainNetError leaves only the cause of a failed dial.
func plainNetError(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}
