// Package prof is the collector behind llamatap host prof: what processes ask of the kernel, as events.
//
// It counts itself the system calls (type syscall), those whose purpose is to wait (type sync), and the traffic of
// sockets (type net); it joins the events disk, mem and sched that other collectors make of their snapshots, and stamps
// all events of an interval alike, so that they name the same phase and tokens of the model.
//
// What is counted where:
//
//   - A call is counted at its return, in the interval in which it returned, with its whole time. One that has not
//     returned is reported as open. Calls of 32-bit programs have other numbers; they are left out and counted
//     (Losses).
//   - Bytes are those that successful calls returned, of mmap, munmap, madvise and fallocate the length that was
//     granted. sendmmsg and recvmmsg return messages; their lengths are read from the caller's memory.
//   - Traffic is counted behind the sockets (sock tracepoints, kernel 6.3), whatever call led there: send, write,
//     sendfile, io_uring, for every family. Older kernels' is counted by system calls: those on sockets, and read,
//     write, readv, writev and sendfile where the descriptor is a socket, which only a kernel with BTF reports. Events
//     say which it was. Peeks are not counted.
//   - A TCP segment that is sent again belongs to the process that last sent on the socket, connected or listened; to
//     process 0 where that was before watching began, or no watched process.
package prof
