/* A program whose threads each do one thing, for the tests of resource/sched.
 *
 *     work KIND... [FILE]    Each thread prints "begin KIND TID MINOR MAJOR VOLUNTARY INVOLUNTARY" and waits for work
 *                            in a read. It works from the byte g on its input until the byte s, prints "rest" with the
 *                            same, and waits again. Then "rested" is printed. At the end of the input the program ends.
 *     work storm N           Starts N processes after the byte g, which end at once, and prints "rested".
 *     work become KIND...    A thread that is not the first becomes this program anew, with the kinds as arguments,
 *                            after the byte g.
 *     work reuse TID N...    Starts one process after the other, all with that number, each of which computes for N ms.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* struct clone_args of <linux/sched.h>, which is at odds with <sched.h>. */
struct clone_args {
	unsigned long long flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	unsigned long long set_tid, set_tid_size, cgroup;
};

static atomic_int stop, resting;
static int go[2], end[2]; /* pipes that are read until they are closed */
static const char *file;
static atomic_int turn; /* of the two that play ping-pong */

/* say prints what a thread is and what the kernel has counted for it. */
static void say(const char *word, const char *kind)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
	struct rusage r;

	pthread_mutex_lock(&one);
	getrusage(RUSAGE_THREAD, &r);
	printf("%s %s %ld %ld %ld %ld %ld\n", word, kind, syscall(SYS_gettid), r.ru_minflt, r.ru_majflt, r.ru_nvcsw,
	       r.ru_nivcsw);
	fflush(stdout);
	pthread_mutex_unlock(&one);
}

static void await(int pipe[2])
{
	char c;

	while (read(pipe[0], &c, 1) < 0 && errno == EINTR)
		;
}

static void announce(const char *kind)
{
	prctl(PR_SET_NAME, kind);
	say("begin", kind);
	await(go);
}

static void *rest(const char *kind)
{
	say("rest", kind);
	resting++;
	await(end);
	return NULL;
}

static void on_first_cpu(void)
{
	cpu_set_t all, one;

	sched_getaffinity(0, sizeof all, &all);
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &all)) {
			CPU_SET(i, &one);
			break;
		}
	}
	sched_setaffinity(0, sizeof one, &one);
}

static void *spin(void *kind)
{
	announce(kind);
	while (!stop)
		;
	return rest(kind);
}

/* Two of these have one processor. */
static void *crowd(void *kind)
{
	on_first_cpu();
	return spin(kind);
}

static void *doze(void *kind)
{
	announce(kind);
	do
		usleep(2000);
	while (!stop);
	return rest(kind);
}

static void *disk(void *kind)
{
	const size_t block = 256 << 10;
	void *to = aligned_alloc(4096, block);
	int fd = open(file, O_RDONLY | O_DIRECT);
	off_t at = 0;

	if (fd < 0 || !to) {
		perror(file);
		exit(1);
	}
	announce(kind);
	while (!stop) {
		ssize_t n = pread(fd, to, block, at);

		at = n <= 0 ? 0 : at + n;
	}
	return rest(kind);
}

/* Waits for its turn in the kernel, computes a little, and gives the turn away. */
static void *pong(void *kind)
{
	int me = strcmp(kind, "pong") ? 0 : 1;

	announce(kind);
	while (!stop) {
		struct timespec most = {0, 50000000};

		syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, 1 - me, &most, NULL, 0);
		for (volatile int i = 0; i < 20000; i++)
			;
		turn = 1 - me;
		syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	}
	return rest(kind);
}

/* Touches pages that it has never touched. */
static void *touch(void *kind)
{
	const size_t size = 4 << 20, page = sysconf(_SC_PAGESIZE);

	announce(kind);
	while (!stop) {
		char *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		madvise(m, size, MADV_NOHUGEPAGE);
		for (size_t i = 0; i < size; i += page)
			m[i] = 1;
		munmap(m, size);
	}
	return rest(kind);
}

/* Touches each page of a file that is not in memory. */
static void *load(void *kind)
{
	const size_t page = sysconf(_SC_PAGESIZE);
	int fd = open(file, O_RDONLY);
	off_t size = lseek(fd, 0, SEEK_END);
	volatile char sum = 0;

	announce(kind);
	while (!stop) {
		char *m = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

		if (fd < 0 || m == MAP_FAILED) {
			perror(file);
			exit(1);
		}
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		madvise(m, size, MADV_RANDOM);
		for (off_t i = 0; i < size && !stop; i += page)
			sum += m[i];
		munmap(m, size);
	}
	return rest(kind);
}

/* Starts threads that touch eight new pages, compute a little and end. */
static void *brief_one(void *unused)
{
	const size_t page = sysconf(_SC_PAGESIZE);
	char *m = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	prctl(PR_SET_NAME, "brief");
	for (size_t i = 0; i < 8 * page; i += page)
		m[i] = 1;
	munmap(m, 8 * page);
	for (volatile int i = 0; i < 200000; i++)
		;
	return unused;
}

static void *brief(void *kind)
{
	int n = 0;

	announce(kind);
	for (; n < 20 || !stop; n++) {
		pthread_t t;

		if (pthread_create(&t, NULL, brief_one, NULL))
			exit(1);
		pthread_join(t, NULL);
		usleep(1000);
	}
	printf("started %d\n", n);
	return rest(kind);
}

static int storm(int n)
{
	for (int i = 0; i < n; i++) {
		pid_t child = fork();

		if (child == 0)
			_exit(0);
		if (child < 0) {
			perror("fork");
			return 1;
		}
		if (i % 64 == 63)
			while (waitpid(-1, NULL, WNOHANG) > 0)
				;
	}
	while (wait(NULL) > 0 || errno == EINTR)
		;
	printf("rested\n");
	fflush(stdout);
	return 0;
}

static void burn(long ms)
{
	struct timespec now;

	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < ms);
}

static int reuse(pid_t tid, char **times)
{
	for (; *times; times++) {
		struct clone_args a = {.exit_signal = SIGCHLD, .set_tid = (unsigned long)&tid, .set_tid_size = 1};
		long child = syscall(SYS_clone3, &a, sizeof a);

		if (child == 0) {
			prctl(PR_SET_NAME, *times);
			burn(atol(*times));
			_exit(0);
		}
		if (child < 0) {
			perror("clone3");
			return 1;
		}
		waitpid(child, NULL, 0);
	}
	printf("rested\n");
	fflush(stdout);
	return 0;
}

static void *become(void *args)
{
	execv("/proc/self/exe", args);
	perror("exec");
	exit(1);
}

int main(int n, char **args)
{
	static const struct { const char *name; void *(*run)(void *); } kinds[] = {
		{"spin", spin}, {"crowd", crowd}, {"doze", doze}, {"disk", disk}, {"ping", pong}, {"pong", pong},
		{"touch", touch}, {"load", load}, {"brief", brief},
	};
	pthread_t threads[64];
	int started = 0;
	char c;

	if (n > 2 && (!strcmp(args[1], "storm") || !strcmp(args[1], "reuse"))) {
		if (read(0, &c, 1) != 1)
			return 1;
		return (args[1][0] == 's' ? storm(atoi(args[2])) : reuse(atoi(args[2]), args + 3)) || read(0, &c, 1) != 0;
	}
	if (n > 2 && !strcmp(args[1], "become")) {
		if (read(0, &c, 1) != 1 || pthread_create(&threads[0], NULL, become, args + 1))
			return 1;
		pthread_join(threads[0], NULL);
		return 1;
	}
	if (pipe(go) || pipe(end))
		return 1;
	for (int i = 1; i < n; i++)
		if (strchr(args[i], '/'))
			file = args[i];
	for (int i = 1; i < n; i++)
		for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
			if (!strcmp(args[i], kinds[k].name))
				pthread_create(&threads[started++], NULL, kinds[k].run, (void *)kinds[k].name);
	while (read(0, &c, 1) > 0) {
		if (c == 'g')
			close(go[1]);
		if (c == 's') {
			stop = 1;
			while (resting < started)
				usleep(1000);
			printf("rested\n");
			fflush(stdout);
		}
	}
	stop = 1;
	close(end[1]);
	while (started)
		pthread_join(threads[--started], NULL);
	return 0;
}
