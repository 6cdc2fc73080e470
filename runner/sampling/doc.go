// Package sampling runs the collectors of sampled memory accesses beside a process: the processor's loads and stores,
// page faults. Each is read by a goroutine of its own into one [Queue], from which whoever knows the process's memory
// takes accesses and says what they touched. What is unavailable is reported, and losses are counted by cause.
package sampling
