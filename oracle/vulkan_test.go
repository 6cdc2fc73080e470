//go:build linux

package oracle

import (
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// onVulkan puts all layers on a device.
func onVulkan(device string) []string { return []string{"-ngl", "99", "-dev", device} }

// TestVulkan: on a GPU's backend, which queues work and copies, tensors of whole graphs are bit by bit those of cut
// ones. A cut ends the fusion of operations, which rounds otherwise; so there is none here.
func TestVulkan(t *testing.T) {
	testenv.Slow(t)
	device := testenv.NeedVulkan(t)
	t.Setenv("GGML_VK_DISABLE_FUSION", "1")
	for _, arch := range archs(t) {
		for _, fa := range []string{"on", "off"} {
			t.Run(arch+" fa "+fa, func(t *testing.T) { uncutEqualsCut(t, arch, append(onVulkan(device), "-fa", fa)...) })
		}
	}
}
