/* Makes system calls for the tests of resource/prof and keeps a tally of them itself.
 *
 *   workload calls FOLDER   every tracked call, some of them failing or moving less than was asked for
 *   workload sockets        traffic of every kind of socket and path into one
 *   workload loss           TCP segments, SYN and SYN-ACK that get lost and are sent again; tallies how many
 *   workload heir           a connection of a child process whose segments get lost; tallies how many, and the child
 *   workload futex N        two threads that wake one another N times
 *   workload forks N        N processes that make a few calls each
 *   workload many N         N reads of a byte each from two threads
 *   workload blocked        calls that do not return until SIGUSR1 comes
 *   workload renamed        a call under one name of the process, and one under the next
 *   workload compat N       N calls with the numbers of 32-bit programs
 *
 * It stops itself (SIGSTOP) before and after what it does, so that a recorder can begin and end there, and prints its
 * tally at the end: name, calls, bytes, errors. Stopping is no tracked call. With WORKLOAD_GOES_ON in its environment
 * it does not stop. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/openat2.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct { const char *name; long calls, bytes, errors; } tallies[64];

static void tally(const char *name, long calls, long bytes, long errors)
{
	int i = 0;

	while (tallies[i].name && strcmp(tallies[i].name, name))
		i++;
	tallies[i].name = name;
	tallies[i].calls += calls;
	tallies[i].bytes += bytes;
	tallies[i].errors += errors;
}

/* call makes a system call and tallies it; per is what a success counts in bytes, -1 being what it returns. */
static long call(const char *name, long number, long per, long a, long b, long c, long d, long e, long f)
{
	long result = syscall(number, a, b, c, d, e, f);

	tally(name, 1, result < 0 ? 0 : per < 0 ? result : per, result < 0);
	return result;
}

#define CALL6(nr, per, a, b, c, d, e, f, ...) \
	call(#nr, SYS_##nr, per, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define CALL(...) CALL6(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void must(long result, const char *what)
{
	if (result < 0)
		fail(what);
}
#define MUST(x) must((x), #x)

static void stop(void)
{
	if (!getenv("WORKLOAD_GOES_ON"))
		raise(SIGSTOP);
}

static void print(void)
{
	for (int i = 0; tallies[i].name; i++)
		printf("%s %ld %ld %ld\n", tallies[i].name, tallies[i].calls, tallies[i].bytes, tallies[i].errors);
}

static void files(const char *path)
{
	char buf[4096];
	struct iovec two[2] = { { buf, 100 }, { buf + 100, 50 } };
	struct open_how how = { .flags = O_RDONLY };
	int fd, full;

	memset(buf, 'x', sizeof buf);
	MUST(fd = CALL(openat, 0, AT_FDCWD, path, O_RDWR | O_CREAT | O_TRUNC, 0600));
	for (int i = 0; i < 10; i++)
		MUST(CALL(write, -1, fd, buf, 100));
	MUST(CALL(pwrite64, -1, fd, buf, 200, 1000));
	MUST(CALL(writev, -1, fd, two, 2));
	MUST(CALL(pwritev, -1, fd, two, 2, 1200, 0));
	MUST(CALL(pwritev2, -1, fd, two, 2, 1350, 0, 0)); /* 1,500 bytes */
	MUST(CALL(fsync, 0, fd));
	MUST(CALL(fdatasync, 0, fd));
	MUST(CALL(fallocate, 8192, fd, 0, 0, 8192));
	MUST(ftruncate(fd, 1500));
	MUST(lseek(fd, 0, SEEK_SET));
	while (CALL(read, -1, fd, buf, 400) > 0) /* the last one that reads something is short */
		;
	MUST(CALL(pread64, -1, fd, buf, 4000, 1000)); /* short: 500 */
	MUST(lseek(fd, 1400, SEEK_SET));
	MUST(CALL(readv, -1, fd, two, 2)); /* short: 100 */
	MUST(CALL(preadv, -1, fd, two, 2, 0, 0));
	MUST(CALL(preadv2, -1, fd, two, 2, 1490, 0, 0)); /* short: 10 */
	MUST(CALL(close, 0, fd));
	MUST(fd = CALL(openat2, 0, AT_FDCWD, path, &how, sizeof how));
	MUST(CALL(close, 0, fd));
#ifdef SYS_open
	MUST(fd = CALL(open, 0, path, O_RDONLY));
	MUST(CALL(close, 0, fd));
#endif
	for (int i = 0; i < 3; i++)
		CALL(openat, 0, AT_FDCWD, "/no/such/file", O_RDONLY, 0); /* ENOENT */
	CALL(close, 0, -1); /* EBADF */
	CALL(read, -1, -1, buf, 1000); /* EBADF: asked for 1,000, moved none */
	CALL(pread64, -1, -1, buf, 1000, 0);
	MUST(full = CALL(openat, 0, AT_FDCWD, "/dev/full", O_WRONLY, 0));
	CALL(write, -1, full, buf, 4000); /* ENOSPC */
	MUST(CALL(close, 0, full));
	CALL(fsync, 0, -1);
	CALL(fdatasync, 0, -1);
	CALL(fallocate, 8192, -1, 0, 0, 8192);
}

static void memory(void)
{
	for (int i = 0; i < 3; i++) {
		long at = CALL(mmap, 65536, 0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		MUST(at);
		MUST(CALL(madvise, 4096, at, 4096, MADV_DONTNEED));
		MUST(CALL(munmap, 65536, at, 65536));
	}
	CALL(mmap, 0, 0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* EINVAL */
	CALL(munmap, 0, 1, 4096);
	CALL(madvise, 0, 1, 4096, MADV_DONTNEED);
}

/* tcp makes a connection over loopback. */
static void tcp(int pair[2], int accept_four)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof at;
	int listener;

	MUST(listener = socket(AF_INET, SOCK_STREAM, 0));
	MUST(bind(listener, (struct sockaddr *)&at, sizeof at));
	MUST(listen(listener, 1));
	MUST(getsockname(listener, (struct sockaddr *)&at, &size));
	MUST(pair[0] = socket(AF_INET, SOCK_STREAM, 0));
	MUST(CALL(connect, 0, pair[0], &at, sizeof at));
	if (accept_four)
		MUST(pair[1] = CALL(accept4, 0, listener, 0, 0, 0));
	else
		MUST(pair[1] = CALL(accept, 0, listener, 0, 0));
	MUST(CALL(close, 0, listener));
}

static void transfer(int from, int to)
{
	char out[1000] = { 0 }, in[2000];
	struct iovec o = { out, 700 }, i = { in, sizeof in };
	struct msghdr send = { .msg_iov = &o, .msg_iovlen = 1 }, receive = { .msg_iov = &i, .msg_iovlen = 1 };

	MUST(CALL(sendto, -1, from, out, 300, 0, 0, 0));
	MUST(CALL(recvfrom, -1, to, in, 100, MSG_PEEK, 0, 0)); /* takes nothing out */
	MUST(CALL(recvfrom, -1, to, in, 2000, 0, 0, 0)); /* short */
	MUST(CALL(sendmsg, -1, from, &send, 0));
	MUST(CALL(recvmsg, -1, to, &receive, 0));
	MUST(CALL(write, -1, from, out, 500)); /* a socket too */
	MUST(CALL(read, -1, to, in, 2000));
	CALL(recvfrom, -1, to, in, 100, MSG_DONTWAIT, 0, 0); /* EAGAIN */
}

static void datagrams(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof at;
	char buf[3][1000];
	struct iovec io[3] = { { buf[0], 100 }, { buf[1], 200 }, { buf[2], 300 } };
	struct mmsghdr m[3] = { 0 };
	int from, to;

	MUST(to = socket(AF_INET, SOCK_DGRAM, 0));
	MUST(bind(to, (struct sockaddr *)&at, sizeof at));
	MUST(getsockname(to, (struct sockaddr *)&at, &size));
	MUST(from = socket(AF_INET, SOCK_DGRAM, 0));
	MUST(CALL(connect, 0, from, &at, sizeof at));
	for (int i = 0; i < 3; i++)
		m[i].msg_hdr = (struct msghdr){ .msg_iov = &io[i], .msg_iovlen = 1 };
	MUST(CALL(sendmmsg, 600, from, m, 3, 0));
	for (int i = 0; i < 3; i++)
		io[i].iov_len = 1000;
	MUST(CALL(recvmmsg, 600, to, m, 3, 0, 0));
	CALL(recvmmsg, 0, to, m, 3, MSG_DONTWAIT, 0); /* EAGAIN */
	MUST(CALL(close, 0, from));
	MUST(CALL(close, 0, to));
}

static void sockets(void)
{
	int pair[2], file;
	char buf[4096] = { 0 };

	tcp(pair, 0);
	transfer(pair[0], pair[1]);
	MUST(CALL(close, 0, pair[1]));
	signal(SIGPIPE, SIG_IGN);
	CALL(sendto, -1, pair[0], buf, 10, 0, 0, 0);
	CALL(sendto, -1, pair[0], buf, 1000, 0, 0, 0); /* EPIPE */
	MUST(CALL(close, 0, pair[0]));
	tcp(pair, 1);
	MUST(file = memfd_create("workload", 0));
	MUST(CALL(write, -1, file, buf, 4096));
	MUST(lseek(file, 0, SEEK_SET));
	MUST(CALL(sendfile, -1, pair[0], file, 0, 1234));
	MUST(CALL(read, -1, pair[1], buf, 4096));
	MUST(CALL(close, 0, file));
	MUST(CALL(close, 0, pair[0]));
	MUST(CALL(close, 0, pair[1]));
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	transfer(pair[0], pair[1]);
	MUST(CALL(close, 0, pair[0]));
	MUST(CALL(close, 0, pair[1]));
	datagrams();
	CALL(connect, 0, -1, 0, 0);
	CALL(accept, 0, -1, 0, 0);
}

/* lose makes a socket drop every packet that it gets, as if the network had. */
static void lose(int fd)
{
	struct sock_filter nothing = { BPF_RET | BPF_K, 0, 0, 0 };
	struct sock_fprog program = { 1, &nothing };

	MUST(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
}

static void find(int fd)
{
	int ignored = 0;

	MUST(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &ignored, sizeof ignored));
}

/* again returns how many segments of a connection were sent again, as the kernel counts them. */
static unsigned again(int fd)
{
	struct tcp_info info;
	socklen_t size = sizeof info;

	MUST(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size));
	return info.tcpi_total_retrans;
}

/* send_again makes segments of a connection get lost until some were sent again, and returns how many. */
static unsigned send_again(int pair[2], unsigned least)
{
	char buf[1000] = { 0 };

	lose(pair[1]);
	MUST(write(pair[0], buf, sizeof buf));
	while (again(pair[0]) < least)
		usleep(1000);
	find(pair[1]);
	MUST(recv(pair[1], buf, sizeof buf, MSG_WAITALL));
	return again(pair[0]) + again(pair[1]);
}

static void heir(void)
{
	int pair[2], status;
	pid_t child;

	tcp(pair, 0);
	MUST(child = fork());
	if (child == 0)
		_exit(send_again(pair, 1));
	MUST(waitpid(child, &status, 0));
	tally("segments", WEXITSTATUS(status), 0, 0);
	tally("child", child, 0, 0);
}

static void loss(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof at;
	int pair[2], listener, client, server;
	struct pollfd done;

	tcp(pair, 0);
	tally("segments", send_again(pair, 2), 0, 0);

	MUST(listener = socket(AF_INET, SOCK_STREAM, 0));
	MUST(bind(listener, (struct sockaddr *)&at, sizeof at));
	MUST(listen(listener, 1));
	MUST(getsockname(listener, (struct sockaddr *)&at, &size));
	MUST(client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	lose(client); /* the SYN-ACK: both ends send theirs again */
	connect(client, (struct sockaddr *)&at, sizeof at);
	while (again(client) < 1)
		usleep(1000);
	find(client);
	done = (struct pollfd){ client, POLLOUT, 0 };
	MUST(poll(&done, 1, -1));
	MUST(server = accept(listener, 0, 0));
	tally("SYN", again(client), 0, 0);
	tally("SYN-ACK", again(server), 0, 0);
}

static void waits(void)
{
	struct timespec little = { 0, 2000000 }, none = { 0 };
	struct timeval none_of_old = { 0 };
	unsigned word = 1, other = 1;
	int epoll, pair[2];
	struct epoll_event event = { .events = EPOLLIN };
	struct pollfd p;
	fd_set set;

	MUST(pipe(pair));
	MUST(epoll = epoll_create1(0));
	MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, pair[0], &event));
	MUST(CALL(epoll_pwait, 0, epoll, &event, 1, 2, 0, 8));
	MUST(CALL(epoll_pwait2, 0, epoll, &event, 1, &none, 0, 8));
	p = (struct pollfd){ pair[0], POLLIN, 0 };
	MUST(CALL(ppoll, 0, &p, 1, &none, 0, 8));
	FD_ZERO(&set);
	MUST(CALL(pselect6, 0, 0, &set, 0, 0, &none, 0));
#ifdef SYS_poll
	MUST(CALL(epoll_wait, 0, epoll, &event, 1, 2));
	MUST(CALL(poll, 0, &p, 1, 2));
	MUST(CALL(select, 0, 0, &set, 0, 0, &none_of_old));
#endif
	(void)none_of_old;
	MUST(CALL(nanosleep, 0, &little, 0));
	MUST(CALL(clock_nanosleep, 0, CLOCK_MONOTONIC, 0, &little, 0));
	CALL(futex, 0, &word, FUTEX_WAIT_PRIVATE, 1, &little, 0, 0); /* ETIMEDOUT */
	CALL(futex, 0, &word, FUTEX_WAIT, 2, 0, 0, 0);               /* EAGAIN */
	MUST(CALL(futex, 0, &word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0));
	MUST(CALL(futex, 0, &word, FUTEX_CMP_REQUEUE_PRIVATE, 1, 1, &other, 1));
	CALL(io_uring_enter, 0, -1, 0, 0, 0, 0, 0); /* EBADF */
	MUST(CALL(close, 0, epoll));
	MUST(CALL(close, 0, pair[0]));
	MUST(CALL(close, 0, pair[1]));
}

static unsigned turn;
static long rounds;
static _Atomic long waited, woke;

/* take waits for its turn, asking the kernel once at least, and gives it to the other thread. */
static void *take(void *mine)
{
	unsigned me = (unsigned)(long)mine;

	for (long i = 0; i < rounds; i++) {
		do {
			syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, !me, 0, 0, 0);
			waited++;
		} while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != me);
		__atomic_store_n(&turn, !me, __ATOMIC_RELEASE);
		syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
		woke++;
	}
	return 0;
}

static void *read_bytes(void *unused)
{
	char byte;
	int zero;

	(void)unused;
	MUST(zero = open("/dev/zero", O_RDONLY));
	for (long i = 0; i < rounds; i++)
		if (syscall(SYS_read, zero, &byte, 1) != 1)
			fail("read");
	return 0;
}

/* rename_thread gives the second thread a name, which is not the process's. */
static void *rename_thread(void *mine)
{
	if (mine)
		MUST(prctl(PR_SET_NAME, "a thread"));
	return 0;
}

static void two(void *(*work)(void *), long n)
{
	pthread_t other;

	rounds = n;
	if (pthread_create(&other, 0, work, (void *)1))
		fail("pthread_create");
	work(0);
	pthread_join(other, 0);
}

static void forks(long n)
{
	for (long i = 0; i < n; i++) {
		pid_t child = fork();

		MUST(child);
		if (child == 0) {
			syscall(SYS_close, -1);
			syscall(SYS_pread64, -1, 0, 0, 0);
			_exit(0);
		}
		MUST(waitpid(child, 0, 0));
	}
	tally("close", n, 0, n);
	tally("pread64", n, 0, n);
}

static void *block(void *fd)
{
	char byte;

	return (void *)syscall(SYS_read, (int)(long)fd, &byte, 1);
}

static void *wait_for_wake(void *word)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0);
	return 0;
}

/* blocked has a thread in read and one in a futex wait until SIGUSR1 comes. */
static void blocked(void)
{
	static unsigned word;
	pthread_t reads, waits;
	int pair[2], came;
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigprocmask(SIG_BLOCK, &signals, 0);
	MUST(pipe(pair));
	if (pthread_create(&reads, 0, block, (void *)(long)pair[0]) || pthread_create(&waits, 0, wait_for_wake, &word))
		fail("pthread_create");
	sigwait(&signals, &came);
	MUST(write(pair[1], "x", 1));
	syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
	pthread_join(reads, 0);
	pthread_join(waits, 0);
}

#ifdef __x86_64__
static void compat(long n)
{
	for (long i = 0; i < n; i++) { /* 6 is close there, lstat here; 3 is read there, close here */
		long result;

		__asm__ volatile("int $0x80" : "=a"(result) : "a"(3l), "b"(-1l), "c"(0l), "d"(0l) : "memory");
		if (result != -EBADF)
			fail("int 0x80");
	}
}
#endif

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	long n = argc > 2 ? atol(argv[2]) : 0;

	setvbuf(stdout, 0, _IOFBF, 65536);
	stop();
	if (!strcmp(what, "calls")) {
		files(argv[2]);
		memory();
		sockets();
		waits();
	} else if (!strcmp(what, "sockets")) {
		sockets();
	} else if (!strcmp(what, "loss")) {
		loss();
	} else if (!strcmp(what, "heir")) {
		heir();
	} else if (!strcmp(what, "futex")) {
		two(take, n);
		tally("wait", waited, 0, 0);
		tally("wake", woke, 0, 0);
	} else if (!strcmp(what, "forks")) {
		forks(n);
	} else if (!strcmp(what, "many")) {
		two(read_bytes, n);
		tally("read", 2 * n, 2 * n, 0);
	} else if (!strcmp(what, "renamed")) {
		CALL(close, 0, -1);
		MUST(prctl(PR_SET_NAME, "another name"));
		two(rename_thread, 0);
		CALL(close, 0, -1);
	} else if (!strcmp(what, "blocked")) {
		blocked();
#ifdef __x86_64__
	} else if (!strcmp(what, "compat")) {
		compat(n);
#endif
	} else {
		fprintf(stderr, "workload: unknown %s\n", what);
		return 2;
	}
	stop();
	print();
	return 0;
}
