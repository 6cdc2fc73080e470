//go:build linux

package oracle

import (
	"strings"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
)

// TestDevice puts all layers on a device, the CPU behind a socket, and compares each captured tensor with that of
// the CPU itself.
func TestDevice(t *testing.T) {
	models := map[string]string{"default": testenv.Model(t), "moe": synthetic(t, "qwen3moe", gguf.F16, nil)}
	if testenv.Nightly() {
		for _, arch := range archs(t) {
			models[arch] = synthetic(t, arch, gguf.F32, nil)
		}
	}
	endpoint := testenv.NeedRPC(t)
	name, path, _ := strings.Cut(testenv.RPCBackend(t), "=")
	t.Setenv(name, path)
	for name, model := range models {
		for _, fa := range []string{"on", "off"} {
			if !testenv.Nightly() && (name == "moe") != (fa == "off") {
				continue // by day each model with one of them
			}
			t.Run(name+" fa "+fa, func(t *testing.T) {
				args := []string{"-m", model, "-p", prompt, "-n", "4", "--temp", "0", "-t", "1", "-c", "512",
					"-ub", "16", "-fa", fa}
				// Repacked weights would be multiplied by other kernels than the device has.
				cpu := tapped(t, everything, "llama-completion", append(args, "-no-cnv", "-dev", "none",
					"--no-repack")...)
				device := tapped(t, everything, "llama-completion", append(args, "-no-cnv", "--rpc", endpoint,
					"-ngl", "99", "-v")...).sealed(t)
				if !strings.Contains(device.stderr, "RPC0["+endpoint+"] model buffer size") {
					t.Fatal("the model was not on the device")
				}
				wantIDs(t, "tokens", device.ids(), cpu.ids())
				if n := equalCaptures(t, "device", device, cpu); n < 100 {
					t.Errorf("only %d tensors were compared", n)
				}
				other := record(t, everything, append(args, "--rpc", endpoint, "-ngl", "99")...)
				equalCaptures(t, "run on the device", other, device)
			})
		}
	}
}
