/* Log2 histograms, the same in BPF, in the user-space C of tests and in resource/histogram.go. Slot 0 holds zeros; slot
 * s from 1 on holds the values from 2^(s-1) to 2^s - 1; the last slot holds all that is larger. */
#pragma once

#define HISTOGRAM_SLOTS 32

static inline unsigned histogram_slot(unsigned long long value)
{
	unsigned slot = 0;

	/* By halves: BPF has no instruction that counts leading zeros. */
	if (value >> 32) { slot += 32; value >>= 32; }
	if (value >> 16) { slot += 16; value >>= 16; }
	if (value >> 8) { slot += 8; value >>= 8; }
	if (value >> 4) { slot += 4; value >>= 4; }
	if (value >> 2) { slot += 2; value >>= 2; }
	if (value >> 1) { slot += 1; value >>= 1; }
	slot += (unsigned)value;
	return slot < HISTOGRAM_SLOTS ? slot : HISTOGRAM_SLOTS - 1;
}
