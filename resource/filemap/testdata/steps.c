/* steps: runs fault.h in user space. Each line of stdin is a step; what it reports is written. First the layout of
 * struct wait_event. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "../fault.h"

#define FIELD(name) \
	printf("%s %zu %zu\n", #name, offsetof(struct wait_event, name), sizeof(((struct wait_event *)0)->name))

static void layout(void)
{
	FIELD(begin_ns); FIELD(end_ns); FIELD(at); FIELD(ino); FIELD(first); FIELD(last); FIELD(blocked_ns);
	FIELD(preempted_ns); FIELD(bytes); FIELD(dev); FIELD(bdev); FIELD(tid); FIELD(tgid); FIELD(call);
	FIELD(kind_flags);
	printf("size %zu\n", sizeof(struct wait_event));
}

int main(void)
{
	struct wait_thread t = {0};
	char step[16];
	wait_u64 a, b, c, d, since;
	int n;

	layout();
	while ((n = scanf("%15s %llu %llu %llu %llu", step, &a, &b, &c, &d)) == 5) {
		if (!strcmp(step, "begin"))
			printf("begin %d\n", wait_fault_begin(&t, a, b, c));
		else if (!strcmp(step, "at"))
			wait_at(&t, a, b, c, c, d);
		else if (!strcmp(step, "off"))
			wait_off(&t, a, b, c);
		else if (!strcmp(step, "on")) {
			n = wait_on(&t, a, &since);
			printf("on %d since %llu call %u\n", n, since, t.call);
		} else if (!strcmp(step, "end")) {
			printf("fault %llu blocked %llu preempted %llu dev %u ino %llu page %llu flags %u\n",
			       t.begin_ns ? a - t.begin_ns : 0, t.blocked_ns, t.preempted_ns, t.place.dev, t.place.ino,
			       t.place.first, t.flags);
			t.begin_ns = 0;
			t.place.dev = 0;
		} else if (!strcmp(step, "read")) {
			if (wait_run_takes(&t.run, a, 1, b, c, d))
				continue;
			if (t.run.pages)
				printf("run ino %llu %llu+%llu from %llu to %llu\n", t.run.ino, t.run.first, t.run.pages,
				       t.run.begin_ns, t.run.end_ns);
			wait_run_begin(&t.run, a, 1, b, c, d);
		}
	}
	return n != EOF;
}
