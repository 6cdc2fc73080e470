//go:build linux && !amd64

package oracle

import (
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

func TestKills(t *testing.T) {
	testenv.Beyond(t, "amd64", "the injector reads the arguments of system calls from its registers")
}
