//go:build llama

package tap

// #cgo CFLAGS: -std=gnu11 -O2 -Wall
// #cgo LDFLAGS: -ldl -lpthread
// #include "tap_shm.h"
// #include <stdbool.h>
// #include <stddef.h>
// void tap_detach(void);
// int tap_attach(int fd, int life_fd);
// void tap_leave_memory(void);
// bool tap_recording(void);
//
// #define TAP_OFFSET(f) (int) offsetof(struct tap_header, f)
// static int tap_layout(int i) {
//     const int v[] = {
//         sizeof(struct tap_header), sizeof(struct tap_config), sizeof(struct tap_stats),
//         TAP_OFFSET(config), TAP_OFFSET(queue_head), TAP_OFFSET(queue_tail), TAP_OFFSET(ring_head),
//         TAP_OFFSET(ring_tail), TAP_OFFSET(taken),
//         TAP_OFFSET(room), TAP_OFFSET(waiting), TAP_OFFSET(collector_sleeps), TAP_OFFSET(work), TAP_OFFSET(attached),
//         TAP_OFFSET(glob_hits), TAP_OFFSET(matched), TAP_OFFSET(stats), TAP_OFFSET(missing),
//         TAP_OFFSET(config.start.layers_set), TAP_OFFSET(config.start.globs), TAP_OFFSET(config.overflow),
//         TAP_OFFSET(config.backends), TAP_OFFSET(config.on_failure),
//         TAP_OFFSET(stats.loss), TAP_OFFSET(stats.wait_ns), TAP_OFFSET(stats.unrecorded),
//         TAP_OFFSET(config.start.window), TAP_OFFSET(selection), TAP_OFFSET(selections), sizeof(struct tap_selection),
//         TAP_OFFSET(llama_version), TAP_OFFSET(seen), TAP_OFFSET(pid), TAP_OFFSET(layouts),
//         TAP_OFFSET(config.start.looking), TAP_OFFSET(config.exact), TAP_OFFSET(config.cold),
//         TAP_OFFSET(config.in_step),
// TAP_OFFSET(config.keep_bytes), TAP_OFFSET(config.turns), TAP_OFFSET(config.judge),
// TAP_OFFSET(config.no_logits), TAP_OFFSET(n_turns), TAP_OFFSET(turn_ns),
// TAP_OFFSET(config.start.points), TAP_OFFSET(points), TAP_OFFSET(points_of), TAP_OFFSET(steer_offset),
// TAP_OFFSET(steer), TAP_OFFSET(steer_ns), TAP_OFFSET(steer_found),
// TAP_OFFSET(steer_seqs), sizeof(struct tap_vectors), offsetof(struct tap_vectors, of),
//     };
//     return i < (int) (sizeof(v) / sizeof(v[0])) ? v[i] : -1;
// }
import "C"

import (
	"fmt"
	"syscall"
)

// Attach records this process into the memory behind a descriptor, whose collector is this process too. A process that
// is recorded already, as one that llamatap started is, returns an error that wraps syscall.EALREADY. [Leave] ends it.
func Attach(fd int) error {
	if errno := C.tap_attach(C.int(fd), -1); errno != 0 {
		return fmt.Errorf("record this process: %w", syscall.Errno(errno))
	}
	return nil
}

// Leave ends what Attach began. No model may be in use.
func Leave() { C.tap_leave_memory() }

// Recording reports whether this process has joined a collector.
func Recording() bool { return bool(C.tap_recording()) }

// Detach says goodbye to the collector. A Go program that ends with os.Exit runs no C destructors, so the runner calls
// it last.
func Detach() { C.tap_detach() }

// Layout lists the sizes and offsets of the shared structures, in the order of tap_layout, for the test that compares
// them with the collector's.
func Layout() []int {
	var out []int
	for i := 0; ; i++ {
		v := int(C.tap_layout(C.int(i)))
		if v < 0 {
			return out
		}
		out = append(out, v)
	}
}
