//go:build linux

package oracle

import (
	"path/filepath"
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

// TestVulkanResume: a run on a GPU's backend that was killed goes on to the same bytes.
func TestVulkanResume(t *testing.T) {
	testenv.Slow(t)
	device := testenv.NeedVulkan(t)
	args := append(resumeArgs(resumable[0].args, 24), onVulkan(device)...)
	o := llamatap(t, args...).good(t)
	w := &whole{text: o.stdout, c: o.capture(t)}
	w.stream = content(t, filepath.Join(w.c.dir, "activations.stream"))
	for round := range 6 {
		if !interrupted(t, w, args, round, len(w.text)*(round+1)/8) {
			t.Errorf("round %d: the run was faster", round)
		}
	}
}
