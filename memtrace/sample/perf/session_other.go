//go:build !linux

package perf

import (
	"errors"
	"fmt"
	"time"
)

// Session needs Linux.
type Session struct{}

// Open returns errors.ErrUnsupported.
func Open(Options) (*Session, error) {
	return nil, fmt.Errorf("%w: perf events need Linux: %w", ErrOpen, errors.ErrUnsupported)
}

// Drain reads nothing.
func (s *Session) Drain(func(*Record) error) (int, error) { return 0, errors.ErrUnsupported }

// Wait waits for nothing.
func (s *Session) Wait(time.Duration) (bool, error) { return false, errors.ErrUnsupported }

// Stop stops nothing.
func (s *Session) Stop() error { return errors.ErrUnsupported }

// Stats are all 0.
func (s *Session) Stats() Stats { return Stats{} }

// Close does nothing.
func (s *Session) Close() error { return nil }
