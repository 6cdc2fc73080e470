/* Fields of the kernel's types that only these programs read, and where each processor has a call's number and
 * arguments. */
#pragma once

#include "kernel.h"
#include "calls.h"
struct thread_info___prof {
	unsigned long flags;
	unsigned int status;
} READ_AS_FOUND;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} READ_AS_FOUND;

struct files_struct {
	struct fdtable *fdt;
} READ_AS_FOUND;

struct inode {
	unsigned short i_mode;
} READ_AS_FOUND;

struct file {
	struct inode *f_inode;
} READ_AS_FOUND;

struct task_struct___prof {
	struct thread_info___prof thread_info;
	struct files_struct *files;
} READ_AS_FOUND;

struct sock_common {
	unsigned short skc_family;
} READ_AS_FOUND;

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
} READ_AS_FOUND;

#if defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 regs[31];
	__u64 orig_x0;
	__s32 syscallno;
} READ_AS_FOUND;
#define NUMBER(regs) ((regs)->syscallno)
#define FIRST(regs) ((regs)->orig_x0)
#define SECOND(regs) ((regs)->regs[1])
#define THIRD(regs) ((regs)->regs[2])
#define FOURTH(regs) ((regs)->regs[3])
#define NUMBERS NUMBERS_arm64
#define FUTEX_NUMBER FUTEX_NUMBER_arm64
#define COMPAT(info) ((info).flags & 1 << 22) /* TIF_32BIT */
#else
struct pt_regs {
	unsigned long di, si, dx, r10, orig_ax;
} READ_AS_FOUND;
#define NUMBER(regs) ((long)(regs)->orig_ax)
#define FIRST(regs) ((regs)->di)
#define SECOND(regs) ((regs)->si)
#define THIRD(regs) ((regs)->dx)
#define FOURTH(regs) ((regs)->r10)
#define NUMBERS NUMBERS_amd64
#define FUTEX_NUMBER FUTEX_NUMBER_amd64
#define COMPAT(info) ((info).status & 2) /* TS_COMPAT */
#endif
