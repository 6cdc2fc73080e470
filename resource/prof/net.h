/* Traffic: whose it is, and how it is counted. */
#pragma once

#include "maps.h"
#include "fields.h"

enum { TCP = 6, TCP_SYN_SENT = 2, TCP_CLOSE = 7, TCP_LISTEN = 10, PEEK = 2, INODE_KIND = 0170000, INODE_SOCKET = 0140000 };

static __always_inline void lose(__u32 cause)
{
	__u64 *n = bpf_map_lookup_elem(&lost, &cause);

	if (n)
		*n += 1;
}

/* name_process keeps the name of a process that is seen for the first time. */
static __always_inline void name_process(__u32 tgid, bool plain)
{
	struct process p = {};

	if (bpf_map_lookup_elem(&processes, &tgid))
		return;
	if (plain) {
		bpf_get_current_comm(p.comm, sizeof p.comm);
	} else {
		struct task_struct *task = bpf_get_current_task_btf();

		BPF_CORE_READ_INTO(&p.comm, task, group_leader, comm);
	}
	bpf_map_update_elem(&processes, &tgid, &p, BPF_NOEXIST);
}

static __always_inline struct net_stat *net_of(__u32 tgid, __u32 family)
{
	struct net_key key = { tgid, family };
	struct net_stat *s = bpf_map_lookup_elem(&nets, &key), zeros = {};

	if (s)
		return s;
	bpf_map_update_elem(&nets, &key, &zeros, BPF_NOEXIST);
	s = bpf_map_lookup_elem(&nets, &key);
	if (!s)
		lose(LOST_NET);
	return s;
}

static __always_inline void net_count(__u32 tgid, __u32 family, bool out, __s64 result, __u64 bytes, __u64 messages, bool plain)
{
	struct net_stat *s = net_of(tgid, family);

	if (!s)
		return;
	if (s->out_calls + s->in_calls + s->out_errors + s->in_errors == 0)
		name_process(tgid, plain);
	if (call_failed(result)) {
		if (out)
			s->out_errors++;
		else
			s->in_errors++;
	} else if (out) {
		s->out_bytes += bytes;
		s->out_calls += messages;
	} else {
		s->in_bytes += bytes;
		s->in_calls += messages;
	}
}

static __always_inline bool is_socket(__s32 fd)
{
	struct task_struct___prof *task = (void *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **all = BPF_CORE_READ(table, fd), *file = NULL;

	if (fd < 0 || (__u32)fd >= BPF_CORE_READ(table, max_fds))
		return false;
	bpf_probe_read_kernel(&file, sizeof file, &all[fd]);
	return file && (BPF_CORE_READ(file, f_inode, i_mode) & INODE_KIND) == INODE_SOCKET;
}

/* own notes that the current process uses a TCP socket. */
static __always_inline void own(__u64 sk, __u32 tgid, bool plain)
{
	__u32 *owner = bpf_map_lookup_elem(&owners, &sk);

	if (owner && *owner == tgid)
		return;
	name_process(tgid, plain); /* its name cannot be had when a segment is sent again: that is no process's doing */
	if (bpf_map_update_elem(&owners, &sk, &tgid, BPF_ANY))
		lose(LOST_OWNER);
}

static __always_inline int retransmitted(__u64 sk, __u32 family)
{
	__u32 *owner = bpf_map_lookup_elem(&owners, &sk);
	struct net_stat *s = net_of(owner ? *owner : 0, family);

	if (s)
		s->retransmits++; /* nobody else writes this field on this processor */
	return 0;
}

static __always_inline int transferred(__u64 sk, __u32 family, __u32 protocol, bool out, int result, bool plain)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	if (out && protocol == TCP)
		own(sk, tgid, plain);
	net_count(tgid, family, out, result, result, 1, plain);
	return 0;
}

/* changed follows a TCP socket's life: connect and listen make its owner, its end frees the address. */
static __always_inline int changed(__u64 sk, int state, bool of_wanted, bool plain)
{
	if (state == TCP_CLOSE)
		bpf_map_delete_elem(&owners, &sk);
	else if ((state == TCP_SYN_SENT || state == TCP_LISTEN) && of_wanted)
		own(sk, bpf_get_current_pid_tgid() >> 32, plain);
	return 0;
}
