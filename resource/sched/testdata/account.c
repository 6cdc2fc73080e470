/* The logic of account.h as a program, for golden tests: it reads commands, one a line, and prints what comes of them.
 *
 *     sleep STATE IOWAIT CALL      what a sleep is; a call by its name, a number or -
 *     report STATE CALL            the same of a tracepoint's state
 *     begin TIME STATE             from here on: one thread
 *     leave TIME STATE | wake TIME | run TIME EPOCH [QUEUED] | show
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../account.h"

static const char *const names[STATES] = {"on_cpu", "runnable", "disk", "lock", "other", "futex", "idle", "gone"};

#define NUMBER(name, amd64, arm64) {#name, SYSCALL_NUMBER(amd64, arm64)},

static const struct { const char *name; int number; } calls[] = {
	SYSCALLS_IDLE(NUMBER, SYSCALL_NONE) SYSCALLS_FUTEX(NUMBER, SYSCALL_NONE)
	SYSCALLS_LOCK(NUMBER, SYSCALL_NONE) SYSCALLS_DISK(NUMBER, SYSCALL_NONE)
};

static int call_number(const char *name)
{
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		if (!strcmp(calls[i].name, name))
			return calls[i].number;
	return strcmp(name, "-") ? atoi(name) : -1;
}

static enum thread_state named(const char *name)
{
	for (int i = 0; i < STATES; i++)
		if (!strcmp(names[i], name))
			return i;
	fprintf(stderr, "no state %s\n", name);
	exit(1);
}

static void show(const struct thread_accounts *t)
{
	unsigned long long sum = 0;

	printf("%s since %llu", names[thread_state(t)], t->mark >> STATE_BITS);
	for (int i = 0; i < STATES; i++) {
		sum += t->ns[i];
		if (t->ns[i])
			printf(" %s %llu", names[i], t->ns[i]);
	}
	printf(" switches %llu+%llu", t->voluntary, t->involuntary);
	printf(" longest %llu@%u before %llu@%u", t->wait_max, t->wait_epoch, t->wait_max_before, t->wait_epoch_before);
	for (int i = 0; i < HISTOGRAM_SLOTS; i++)
		if (t->waits[i])
			printf(" [%d]=%u", i, t->waits[i]);
	printf("%s\n", sum == (t->mark >> STATE_BITS) - t->born ? "" : " UNSTEADY");
}

int main(void)
{
	struct thread_accounts t = {0};
	char line[256];

	while (fgets(line, sizeof line, stdin)) {
		char *word = strtok(line, " \n"), *a = strtok(NULL, " \n"), *b = strtok(NULL, " \n"), *c = strtok(NULL, " \n");

		if (!word || *word == '#')
			continue;
		if (!strcmp(word, "sleep")) {
			printf("sleep %s %s %s: %s\n", a, b, c, names[sleep_state(strtoul(a, NULL, 0), atoi(b), call_number(c))]);
		} else if (!strcmp(word, "report")) {
			printf("report %s %s: %s\n", a, b, names[reported_state(strtoul(a, NULL, 0), call_number(b))]);
		} else if (!strcmp(word, "begin")) {
			memset(&t, 0, sizeof t);
			thread_begin(&t, strtoull(a, NULL, 0), named(b));
		} else if (!strcmp(word, "leave")) {
			thread_leave(&t, strtoull(a, NULL, 0), named(b));
		} else if (!strcmp(word, "wake")) {
			thread_wake(&t, strtoull(a, NULL, 0));
		} else if (!strcmp(word, "run")) {
			thread_run(&t, strtoull(a, NULL, 0), strtoul(b, NULL, 0), c ? strtoull(c, NULL, 0) : UNKNOWN);
		} else if (!strcmp(word, "show")) {
			show(&t);
		} else {
			fprintf(stderr, "no command %s\n", word);
			return 1;
		}
	}
	return 0;
}
