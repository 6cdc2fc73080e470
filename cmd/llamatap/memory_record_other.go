//go:build !linux

package main

func runMemoryRecord(args []string) error {
	if _, ok, err := parseMemoryRecord(args); err != nil || !ok {
		return err
	}
	return errNotHere
}
