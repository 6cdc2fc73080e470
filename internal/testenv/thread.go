package testenv

import "runtime"

// OnThread calls f on a thread of its own, and waits. The thread ends with f: what f takes from it, such as rights,
// nobody else lacks.
func OnThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		done <- f()
	}()
	return <-done
}
