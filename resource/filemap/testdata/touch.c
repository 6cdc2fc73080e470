/* touch FILE MODE COUNT: waits for a line on stdin, maps the file, touches COUNT bytes of it, each in another page, and
 * writes for each the address, when it began and how long it took. MODE: cold (out of the page cache, without
 * read-ahead), warm (in it), anon (no file), threads (cold, by four threads at once), read (cold, by read(2) into
 * memory that is there), populate (cold, MAP_POPULATE alone), direct (past the page cache), flood (anonymous, 500 at a
 * time, 50,000 per second, not timed). The last line has the minor and major faults and the voluntary switches since
 * stdin. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static uint64_t *began, *took;
static volatile char *base;
static long pages, count, page;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static long place(long i) { return (i * 7919 + 13) % pages * page + 5; }

static void *touch(void *from)
{
	static char sum;

	for (long i = (long)from; i < count; i += 4) {
		volatile char *p = base + place(i);

		began[i] = now();
		sum += *p;
		took[i] = now() - began[i];
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const char *mode = argc == 4 ? argv[2] : "";
	int fd = argc == 4 ? open(argv[1], O_RDONLY) : -1;
	struct stat s;
	struct rusage before, after;
	pthread_t threads[4];
	long i;

	if (fd < 0 || fstat(fd, &s))
		return perror("touch"), 1;
	page = sysconf(_SC_PAGESIZE);
	pages = s.st_size / page;
	count = atol(argv[3]);
	began = malloc(2 * count * sizeof *began);
	took = began + count;
	memset(began, 1, 2 * count * sizeof *began);
	if (strcmp(mode, "warm"))
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	if (getchar() < 0)
		return 1;
	getrusage(RUSAGE_SELF, &before);
	if (!strcmp(mode, "read") || !strcmp(mode, "direct")) {
		char *to = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (!strcmp(mode, "direct") && (fd = open(argv[1], O_RDONLY | O_DIRECT)) < 0)
			return perror("direct"), 1;
		while (read(fd, to, 1 << 20) > 0)
			;
		count = 0;
	} else if (!strcmp(mode, "flood")) {
		struct timespec next;

		pages = 500;
		base = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		madvise((void *)base, pages * page, MADV_NOHUGEPAGE);
		clock_gettime(CLOCK_MONOTONIC, &next);
		for (i = 0; i < count; i++) {
			base[i % pages * page] = 1;
			if (i % pages < pages - 1)
				continue;
			madvise((void *)base, pages * page, MADV_DONTNEED);
			next.tv_nsec += 10000000;
			next.tv_sec += next.tv_nsec / 1000000000;
			next.tv_nsec %= 1000000000;
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
		}
		count = 0;
	} else if (!strcmp(mode, "populate")) {
		mmap(NULL, s.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
		count = 0;
	} else {
		int anon = !strcmp(mode, "anon");

		base = mmap(NULL, s.st_size, PROT_READ | PROT_WRITE * anon,
			    anon ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, anon ? -1 : fd, 0);
		if (base == MAP_FAILED)
			return perror("mmap"), 1;
		madvise((void *)base, s.st_size, anon ? MADV_NOHUGEPAGE : MADV_RANDOM);
		if (!strcmp(mode, "threads")) {
			for (i = 0; i < 4; i++)
				pthread_create(&threads[i], NULL, touch, (void *)i);
			for (i = 0; i < 4; i++)
				pthread_join(threads[i], NULL);
		} else {
			for (i = 0; i < count; i++) {
				volatile char *p = base + place(i);

				began[i] = now();
				*p;
				took[i] = now() - began[i];
			}
		}
	}
	getrusage(RUSAGE_SELF, &after);
	for (i = 0; i < count; i++)
		printf("touch %lx %lu %lu\n", (unsigned long)(base + place(i)), (unsigned long)began[i],
		       (unsigned long)took[i]);
	printf("%ld %ld %ld\n", after.ru_minflt - before.ru_minflt, after.ru_majflt - before.ru_majflt,
	       after.ru_nvcsw - before.ru_nvcsw);
	return fflush(stdout) || getchar() < -1;
}
