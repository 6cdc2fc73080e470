/* Prints what calls.h does, for the tests of resource/prof. */
#include <stdio.h>
#include "../calls.h"

static const char *const names[] = {
#define NAME(id, name, flags) [CALL_OF_##id] = name,
	CALLS(NAME)
};

static const unsigned char amd64[CALL_NUMBERS] = { NUMBERS_amd64(CALL_AT) };
static const unsigned char arm64[CALL_NUMBERS] = { NUMBERS_arm64(CALL_AT) };

static void latency(call_u64 ns) { printf("latency %llu %u\n", ns, latency_slot(ns)); }

static void print_open(call_u64 word)
{
	printf("open %llu: since %llu, call %s, timed %d\n", word, open_begin(word), names[open_call(word)],
	       !!(word & OPEN_TIMED));
}

static void stat(const char *what, const struct call_stat *s)
{
	printf("stat %s: %llu calls %llu errors %llu bytes %llu timed %llu ns of %llu begun, "
	       "longest %llu of %u, before %llu of %u\n",
	       what, s->count, s->errors, s->bytes, s->timed, s->ns, s->begun,
	       s->longest, s->interval, s->longest_before, s->interval_before);
}

int main(void)
{
	struct call_stat s = { 0 };

	printf("sizes %d %d %d\n", CALL_SLOTS, LATENCY_SLOTS, ERRNO_SLOTS);
	for (int i = 1; i < CALL_COUNT; i++)
		printf("call %d %s %d %d\n", i, names[i], !!(call_flags[i] & CALL_WAITS), !!(call_flags[i] & CALL_SAMPLED));
	for (int i = 0; i < CALL_NUMBERS; i++)
		if (amd64[i])
			printf("amd64 %d %s\n", i, names[amd64[i]]);
	for (int i = 0; i < CALL_NUMBERS; i++)
		if (arm64[i])
			printf("arm64 %d %s\n", i, names[arm64[i]]);
	printf("futex number %d of amd64 %d, %d of arm64 %d\n",
	       FUTEX_NUMBER_amd64, amd64[FUTEX_NUMBER_amd64] == CALL_OF_FUTEX_OTHER,
	       FUTEX_NUMBER_arm64, arm64[FUTEX_NUMBER_arm64] == CALL_OF_FUTEX_OTHER);
	for (call_u64 op = 0; op < 16; op++)
		printf("operation %llu %d\n", op, (int)call_of_futex(op | 128) - CALL_OF_FUTEX_WAIT);
	for (int bit = 0; bit < 64; bit++)
		for (call_u64 quarter = 4; quarter < 8; quarter++) {
			call_u64 ns = bit < 2 ? quarter << bit : quarter << (bit - 2);

			latency(ns - 1);
			latency(ns);
		}
	latency(0);
	latency(~0ull);
	for (int number = 0; number <= 4096; number++)
		if (number < 3 || (number > 131 && number < 136) || (number > 510 && number < 520) || number > 4093)
			printf("errno %d failed %d slot %u\n", number, call_failed(-number), errno_slot(-number));
	call_count(&s, 100, 100, 0, 0, 1);
	call_count(&s, -11, 100, 0, 0, 1);
	stat("after a success and a failure", &s);
	call_count(&s, 0, 7, 1, 5000, 1);
	call_count(&s, 0, 0, 1, 3000, 1);
	stat("in interval 1", &s);
	call_count(&s, 0, 0, 1, 1000, 2);
	stat("in interval 2", &s);
	call_count(&s, 0, 0, 1, 2000, 9);
	stat("in interval 9", &s);
	print_open(open_word(123456789012345678ull, 1, CALL_OF_CLOCK_NANOSLEEP));
	print_open(open_word(1, 0, CALL_OF_READ));
	printf("arguments %llu %llu %llu %llu\n",
	       call_argument(call_flags[CALL_OF_MMAP], 2, 3, 4), call_argument(call_flags[CALL_OF_FALLOCATE], 2, 3, 4),
	       call_argument(call_flags[CALL_OF_RECVMSG], 2, 3, 4), call_argument(call_flags[CALL_OF_RECVFROM], 2, 3, 4));
	return 0;
}
