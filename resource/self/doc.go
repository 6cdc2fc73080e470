// Package self tells what llamatap's own process costs while it watches another: processor time, memory, faults,
// and the time that its BPF programs take on the processors of those whom they watch.
package self
