package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// NeedVulkan makes ggml's Vulkan backend, on Mesa's software driver (lavapipe), that of the programs that the test
// starts, and returns the name of the device. It is a GPU's backend as a program sees it: memory of its own, work and
// copies that are queued, fused operations.
func NeedVulkan(t testing.TB) string {
	t.Helper()
	backend := filepath.Join(NeedLlama(t), "backends-vulkan", "libggml-vulkan.so")
	if _, err := os.Stat(backend); err != nil {
		Beyond(t, "ggml's Vulkan backend", err.Error()) // an older version of llama.cpp is built without it
	}
	drivers, _ := filepath.Glob("/usr/share/vulkan/icd.d/lvp_icd*.json")
	if len(drivers) == 0 {
		vulkan.miss(t, "no /usr/share/vulkan/icd.d/lvp_icd*.json")
	}
	for name, value := range map[string]string{
		"GGML_BACKEND_PATH": backend, "VK_ICD_FILENAMES": drivers[0],
		"GGML_VK_VISIBLE_DEVICES": "0", // a device of software is left out unless it is named
	} {
		t.Setenv(name, value)
	}
	return "Vulkan0"
}
