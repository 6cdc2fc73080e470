//go:build linux

package session

import (
	"errors"
	"testing"

	"github.com/llamatap/llamatap/cgo/nvml"
	"github.com/llamatap/llamatap/internal/testenv"
)

func TestGPU(t *testing.T) {
	if _, err := nvml.Open("nowhere.so"); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	if openGPU("libnvidia-ml-that-is-nowhere.so.1") != nil {
		t.Error("a GPU without NVML")
	}
	g := openGPU(testenv.FakeNVML(t))
	if g == nil {
		t.Log("built without llama.cpp")
		return
	}
	defer g.close()
	if busy, used, ok := g.read(); busy != 87 || used != 3<<30 || !ok {
		t.Errorf("%g %%, %d bytes, %v", busy, used, ok)
	}
}
