//go:build linux

package session

import (
	"runtime"
	"testing"

	"github.com/llamatap/llamatap/config"
)

// TestWorkers: a stream that is opened while Go has one processor is packed by as many goroutines as at the start.
func TestWorkers(t *testing.T) {
	all := runtime.GOMAXPROCS(3)
	defer runtime.GOMAXPROCS(all)
	f := newFiles(&run{o: Options{Tap: &config.Tap{}}}, nil, nil, nil, 0)
	runtime.GOMAXPROCS(1)
	if f.workers != 3 {
		t.Errorf("%d goroutines of 3", f.workers)
	}
	if f := newFiles(&run{o: Options{Tap: &config.Tap{Workers: 2}}}, nil, nil, nil, 0); f.workers != 2 {
		t.Errorf("%d goroutines, 2 were asked for", f.workers)
	}
}
