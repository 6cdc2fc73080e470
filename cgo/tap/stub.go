//go:build !llama

package tap

import "errors"

// Attach does nothing without llama.cpp, and says so.
func Attach(int) error { return errors.ErrUnsupported }

// Leave does nothing without llama.cpp.
func Leave() {}

// Recording reports whether this process has joined a collector: never, without llama.cpp.
func Recording() bool { return false }

// Detach does nothing without llama.cpp.
func Detach() {}

// Layout is empty without llama.cpp.
func Layout() []int { return nil }
