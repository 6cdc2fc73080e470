//go:build ignore

/* Block requests: how long the device takes for each, how many it has at once, and who asked for them. A request is
 * followed by its address from its start (in the context of the task that submits it) over its issue to its completion;
 * what is said of a request is in requests.h. Hot path: 100 ns per request for all programs together, of which two
 * readings of the clock are the most. */
#include "target.h"
#include "requests.h"

char LICENSE[] SEC("license") = "GPL";

#define BPF_F_MMAPABLE 1024

struct gendisk {
	int major;
	int first_minor;
} READ_AS_FOUND;

struct block_device {
	struct gendisk *bd_disk;
	__u32 bd_dev;
} READ_AS_FOUND;

struct blkcg {
	struct cgroup_subsys_state css;
} READ_AS_FOUND;

struct blkcg_gq {
	struct blkcg *blkcg;
} READ_AS_FOUND;

struct bio {
	struct block_device *bi_bdev;
	unsigned bi_opf;
	struct blkcg_gq *bi_blkg;
} READ_AS_FOUND;

struct request_queue {
	struct gendisk *disk;
} READ_AS_FOUND;

enum mq_rq_state { MQ_RQ_IDLE };

struct request {
	struct request_queue *q;
	unsigned cmd_flags;
	unsigned rq_flags;
	unsigned __data_len;
	struct bio *bio;
	struct block_device *part;
	__u64 start_time_ns;
	enum mq_rq_state state;
	struct {
		int counter;
	} ref;
} READ_AS_FOUND;

enum rqf_flags { __RQF_IO_STAT = 8 };
enum cgroup_subsys_id { io_cgrp_id = 1 };

struct block_table table; /* alone in .bss, so that a reader that maps it knows where it lies */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* (processors + 1) * rows; the last processor stands for all, and is added to atomically */
	__type(key, __u32);
	__type(value, struct block_counts);
} counts SEC(".maps");

const volatile __u32 bucket_mask = BLOCK_BUCKETS - 1;
const volatile __u32 row_mask = BLOCK_ROWS - BLOCK_FIXED - 1;
const volatile __u32 row_count = BLOCK_ROWS; /* fixed ones with the others */
const volatile __u32 processors = 1;
const volatile bool by_device;
const volatile __u32 only_devices[8]; /* the only disks or partitions to look at; unused ones are no device's number */
const volatile bool starts = true;    /* the kernel has block_io_start; else the task of the issue stands for it */
const volatile bool groups_v1;        /* rows name groups of v1's blkio; else of v2 */

/* What tasks of this processor were found to be last; on_start's alone, which the kernel does not run within itself. */
#define KNOWN 4
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, KNOWN);
	__type(key, __u32);
	__type(value, struct block_known);
} knowns SEC(".maps");

/* These are functions of their own, which the verifier goes through once, and not once for each way in which a program
 * gets there. */
__noinline int table_find(__u64 key)
{
	return block_find(&table, key, bucket_mask);
}

__noinline int table_insert(__u64 key)
{
	return block_insert(&table, key, bucket_mask);
}

__noinline int table_row(const struct block_row *want, __u32 disk)
{
	return want ? block_row_of(&table, want, disk, row_mask) : 0;
}

/* A place is where a request goes: the device that the kernel accounts it to, and the disk that it lies on. */
struct place {
	__u32 device;
	__u32 disk;
};

/* number_of makes a number of an address. The verifier calculates with pointers only as far as to subtract one from
 * another: the number is the distance from the table. */
static __always_inline __u64 number_of(const void *address)
{
	__u64 key = (__u64)address;

	asm volatile("%0 -= %1" : "+r"(key) : "r"(&table));
	return key;
}

/* key_of is the key of a request. */
static __always_inline __u64 key_of(const struct request *rq)
{
	return number_of(rq);
}

/* address_of is the way back. The address of the table is read from where it lies on the stack, which makes it a
 * number. */
static __always_inline void *address_of(__u64 key)
{
	struct block_table *volatile from = &table;
	__u64 base = 0;

	bpf_probe_read_kernel(&base, sizeof base, (const void *)&from);
	return (void *)(key + base);
}

static __always_inline __u32 disk_number(const struct gendisk *disk)
{
	return disk ? (__u32)disk->major << 20 | (__u32)disk->first_minor : 0;
}

static __always_inline struct place place_of(const struct request *rq, const struct bio *bio)
{
	struct block_device *part = bio ? bio->bi_bdev : rq->part;
	struct place p = {};

	if (part) {
		p.device = part->bd_dev;
		p.disk = disk_number(part->bd_disk);
	} else {
		p.device = p.disk = disk_number(rq->q->disk);
	}
	return p;
}

static __always_inline bool wanted_device(struct place p)
{
	__u32 other = 1;

	if (!by_device)
		return true;
	/* Without branches: the verifier follows each way through a program. */
#pragma clang loop unroll(full)
	for (int i = 0; i < 8; i++) {
		__u32 a = only_devices[i] ^ p.device, b = only_devices[i] ^ p.disk;

		other &= (a | -a) >> 31 & (b | -b) >> 31;
	}
	return !other;
}

/* wanted_owner reports, for write-back by a kernel thread, whether the group that is charged is wanted. */
static __always_inline bool wanted_owner(const struct bio *bio)
{
	struct cgroup *group;

	if (target_by_pid || target_by_comm || !bio || !bio->bi_blkg)
		return false;
	if (target_cgroup_subsys >= 0 && target_cgroup_subsys != (int)bpf_core_enum_value(enum cgroup_subsys_id, io_cgrp_id))
		return false;
	group = bio->bi_blkg->blkcg->css.cgroup;
	return target_has_cgroup(group);
}

static __always_inline bool wanted_request(struct task_struct *task, const struct bio *bio)
{
	if (!target_by_pid && !target_by_comm && !target_by_cgroup)
		return true;
	if (wanted(task))
		return true;
	return target_by_cgroup && (task->flags & PF_KTHREAD) && wanted_owner(bio);
}

/* group_of returns the number of the control group that a request is accounted to: the task's, or, of a kernel thread,
 * its owner's. */
static __always_inline __u64 group_of(struct task_struct *task, const struct bio *bio)
{
	if (task->flags & PF_KTHREAD)
		return bio && bio->bi_blkg ? bio->bi_blkg->blkcg->css.cgroup->kn->id : 0;
	if (groups_v1) {
		struct css_set *set = task->cgroups;
		__u64 at = bpf_core_field_offset(set->subsys) + 8 * bpf_core_enum_value(enum cgroup_subsys_id, io_cgrp_id);
		/* A load that the verifier knows, which costs a tenth of reading through a helper. */
		struct cgroup_subsys_state *state = *(struct cgroup_subsys_state **)((char *)set + at);

		return state->cgroup->kn->id;
	}
	return task->cgroups->dfl_cgrp->kn->id;
}

static __always_inline void who(struct block_row *want, struct task_struct *task, const struct bio *bio)
{
	struct task_struct *leader = task->group_leader;

	want->tgid = task->tgid;
	want->cgroup = group_of(task, bio);
	want->comm[0] = ((const __u64 *)leader->comm)[0];
	want->comm[1] = ((const __u64 *)leader->comm)[1];
}

static __always_inline struct block_counts *counts_of(__u32 processor, __u32 row)
{
	__u32 at = processor * row_count + row;

	return bpf_map_lookup_elem(&counts, &at);
}

/* lost_end notes that a request ended unseen: its address is used again, or the kernel has it no longer. */
static __always_inline void lost_end(const struct block_slot *slot, unsigned cause)
{
	struct block_counts *c = counts_of(processors, slot->row);

	block_withdrawn(&table, slot);
	__sync_fetch_and_add(&table.lost[cause], 1);
	if (c && slot->issue_ns) {
		__sync_fetch_and_add(&c->bytes, slot->bytes);
		__sync_fetch_and_add(&c->untimed, 1);
		__sync_fetch_and_add(&c->events, 1);
	}
}

/* take ends a request's time in the table; false says that somebody else did. The request leaves the depth before its
 * slot is free: another processor may take the slot at once, and would count both. */
static __always_inline bool take(int at, __u64 key, struct block_slot *slot)
{
	*slot = table.slots[at & (BLOCK_SLOTS - 1)];
	block_withdrawn(&table, slot);
	if (block_remove(&table, at, key, bucket_mask))
		return true;
	block_restored(&table, slot);
	return false;
}

static __always_inline void count_merge(__u32 row)
{
	struct block_counts *c = counts_of(processors, row);

	if (c) {
		__sync_fetch_and_add(&c->merges, 1);
		__sync_fetch_and_add(&c->events, 1);
	}
}

static __always_inline void count_requeue(__u32 row)
{
	struct block_counts *c = counts_of(processors, row);

	if (c) {
		__sync_fetch_and_add(&c->requeues, 1);
		__sync_fetch_and_add(&c->events, 1);
	}
}

/* place makes a slot for a request of a row. */
static __always_inline int place(__u64 key, __u32 row, __u32 disk)
{
	int at = block_find(&table, key, bucket_mask);
	struct block_slot *slot;

	if (at >= 0) { /* the end of what had this address before was missed */
		slot = &table.slots[at & (BLOCK_SLOTS - 1)];
		lost_end(slot, BLOCK_ORPHAN);
		slot->issue_ns = 0;
		slot->bytes = 0;
	} else {
		at = table_insert(key);
		if (at < 0)
			return -1;
		slot = &table.slots[at & (BLOCK_SLOTS - 1)];
	}
	slot->row = row;
	slot->disk = disk;
	return at;
}

static __always_inline __u32 disk_of(__u32 row)
{
	return row < BLOCK_ROWS ? table.rows[row].disk : 0;
}

/* enter makes a slot for a request of the current task, where it is wanted. */
static __always_inline int enter(struct request *rq, __u64 key)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct bio *bio = rq->bio;
	struct place p = place_of(rq, bio);
	struct block_row want = {};
	__u32 row;

	if (!wanted_device(p) || !wanted_request(task, bio))
		return -1;
	want.op = block_op_of(rq->cmd_flags);
	want.device = p.device;
	who(&want, task, bio);
	row = table_row(&want, p.disk);
	return place(key, row, disk_of(row));
}

/* find_out finds out what a request of a task is. */
static __always_inline void find_out(struct request *rq, struct task_struct *task, struct block_known *k)
{
	struct place p = place_of(rq, rq->bio);
	struct block_row want = {};

	k->wanted = wanted_device(p) && wanted_request(task, rq->bio);
	if (!k->wanted)
		return;
	want.op = k->op;
	want.device = k->device;
	who(&want, task, rq->bio);
	k->row = table_row(&want, p.disk);
	k->disk = disk_of(k->row);
	if (k->row < BLOCK_FIXED)
		k->turn = ~0ull; /* no room: each request of it is counted as lost to its row, and looks for room anew */
}

/* start: a task starts a request. Kernel threads do so for others, and a thread's own name is not looked at here: both
 * are found out each time. */
static __always_inline void start(struct request *rq)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 tgid = task->tgid, op = block_op_of(rq->cmd_flags), at = (tgid ^ op) & (KNOWN - 1), device;
	const __u64 *comm = (const __u64 *)task->group_leader->comm;
	__u64 turn = block_turn(&table), groups = number_of(task->cgroups), comm0 = comm[0], comm1 = comm[1];
	struct block_device *part;
	struct block_known *k;

	part = rq->bio ? rq->bio->bi_bdev : rq->part;
	k = bpf_map_lookup_elem(&knowns, &at);
	if (target_by_comm || task->flags & PF_KTHREAD || !part || !k) {
		enter(rq, key_of(rq));
		return;
	}
	device = part->bd_dev;
	if (k->turn != turn || k->tgid != tgid || k->groups != groups || k->device != device || k->op != op || k->comm[0] != comm0 || k->comm[1] != comm1) {
		k->turn = turn;
		k->tgid = tgid;
		k->groups = groups;
		k->device = device;
		k->op = op;
		k->comm[0] = comm0;
		k->comm[1] = comm1;
		find_out(rq, task, k);
	}
	if (k->wanted)
		place(key_of(rq), k->row, k->disk);
}

SEC("tp_btf/block_io_start")
int BPF_PROG(on_start, struct request *rq)
{
	start(rq);
	return 0;
}

/* What tasks were found to be by their sets of groups is found out anew: an address may be that of another set now. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_moved)
{
	__sync_fetch_and_add(&table.moves, 1);
	return 0;
}

/* These are loaded where what the target starts belongs to it. What was found of a number holds no longer: it may be
 * that of another process. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 from = parent->tgid, to = child->tgid;

	if (from == to || !bpf_map_lookup_elem(&target_pids, &from))
		return 0;
	if (!target_follow(from, to))
		__sync_fetch_and_add(&table.lost[BLOCK_LOST_CHILD], 1);
	__sync_fetch_and_add(&table.moves, 1);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid;

	if (!bpf_map_lookup_elem(&target_pids, &tgid))
		return 0;
	target_leave(task);
	__sync_fetch_and_add(&table.moves, 1);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(on_issue, struct request *rq)
{
	__u64 key = key_of(rq);
	int at = block_find(&table, key, bucket_mask);

	/* What was not seen to start is the device's own flush, or was started before this program was; its task says
	 * nothing. */
	if (at < 0 && (!starts || !(target_by_pid || target_by_comm || target_by_cgroup)))
		at = enter(rq, key);
	if (at >= 0)
		block_issued(&table, at, bpf_ktime_get_ns(), rq->__data_len);
	return 0;
}

/* submitted returns when a request was submitted, as the kernel's own statistics have it; 0 where it keeps none. */
static __always_inline __u64 submitted(const struct request *rq)
{
	unsigned bit = 13; /* before the flags became an enum */

	if (bpf_core_enum_value_exists(enum rqf_flags, __RQF_IO_STAT))
		bit = bpf_core_enum_value(enum rqf_flags, __RQF_IO_STAT);
	return rq->rq_flags >> (bit & 31) & 1 ? rq->start_time_ns : 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_complete, struct request *rq, int error, unsigned nr_bytes)
{
	__u64 key = key_of(rq);
	int at = block_find(&table, key, bucket_mask);
	struct block_counts *c;
	struct block_slot slot;
	struct block_end end;

	if (at < 0) {
		if (nr_bytes && !(target_by_pid || target_by_comm || target_by_cgroup) && wanted_device(place_of(rq, rq->bio)))
			__sync_fetch_and_add(&table.lost[BLOCK_UNMATCHED], 1);
		return 0;
	}
	if (nr_bytes < rq->__data_len)
		return 0; /* a part of it */
	if (!take(at, key, &slot))
		return 0;
	end.now = bpf_ktime_get_ns();
	end.start_ns = submitted(rq);
	end.bytes = nr_bytes;
	end.error = (error & 0xff) != 0;
	c = counts_of(bpf_get_smp_processor_id(), slot.row);
	if (c)
		BLOCK_COUNT(c, &slot, &end, BLOCK_PLAINLY);
	return 0;
}

/* The kernel does not run a program in an interrupt that came while the same program ran on that processor. What
 * on_complete missed in that way is found here, a little later in the same completion. */
SEC("tp_btf/block_io_done")
int BPF_PROG(on_done, struct request *rq)
{
	__u64 key = key_of(rq);
	int at = block_find(&table, key, bucket_mask);
	struct block_counts *c;
	struct block_slot slot;
	struct block_end end;

	if (at < 0 || !take(at, key, &slot))
		return 0;
	end.now = bpf_ktime_get_ns();
	end.start_ns = submitted(rq);
	end.bytes = 0; /* neither is known any more */
	end.error = false;
	c = counts_of(processors, slot.row);
	if (c)
		BLOCK_COUNT(c, &slot, &end, BLOCK_ATOMICALLY);
	return 0;
}

SEC("tp_btf/block_rq_requeue")
int BPF_PROG(on_requeue, struct request *rq)
{
	int at = table_find(key_of(rq));

	if (at < 0)
		return 0;
	at &= BLOCK_SLOTS - 1;
	block_withdrawn(&table, &table.slots[at]);
	table.slots[at].issue_ns = 0;
	count_requeue(table.slots[at].row);
	return 0;
}

/* on_merge: this request became part of another one, and ends without a completion. */
SEC("tp_btf/block_rq_merge")
int BPF_PROG(on_merge, struct request *rq)
{
	__u64 key = key_of(rq);
	int at = table_find(key);
	struct block_slot slot;

	if (at >= 0 && take(at, key, &slot))
		count_merge(slot.row);
	return 0;
}

/* bio_merged: a bio became part of a request that is there, and begins none of its own. */
static __always_inline int bio_merged(struct bio *bio)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct block_device *part = bio->bi_bdev;
	struct block_row want = {};
	struct place p;

	if (!part)
		return 0;
	p.device = part->bd_dev;
	p.disk = disk_number(part->bd_disk);
	if (!wanted_device(p) || !wanted_request(task, bio))
		return 0;
	want.op = block_op_of(bio->bi_opf);
	want.device = p.device;
	who(&want, task, bio);
	count_merge(table_row(&want, p.disk));
	return 0;
}

SEC("tp_btf/block_bio_backmerge")
int BPF_PROG(on_backmerge, struct bio *bio)
{
	return bio_merged(bio);
}

SEC("tp_btf/block_bio_frontmerge")
int BPF_PROG(on_frontmerge, struct bio *bio)
{
	return bio_merged(bio);
}

/* Looking at old requests: whether the kernel still has one, and giving up one that it has not. Both are run by the
 * reader. */
struct old {
	__u64 key;
	__u64 issue_ns; /* as it was seen: another one is another request */
	__u32 at;
	__u32 answer; /* of is_alive: 1 where the kernel has it; of give_up: 1 where it was given up */
};

SEC("syscall")
int is_alive(struct old *o)
{
	struct request *rq = address_of(o->key);
	struct block_slot *slot = &table.slots[o->at & (BLOCK_SLOTS - 1)];
	enum mq_rq_state state = MQ_RQ_IDLE;
	int ref = 1;

	o->answer = 0;
	if (bpf_core_read(&state, sizeof state, &rq->state))
		return 0;
	if (bpf_core_field_exists(rq->ref.counter) && bpf_core_read(&ref, sizeof ref, &rq->ref.counter))
		return 0;
	/* One that was issued is in flight, or completed by the device and not ended yet; one that waits has users. */
	o->answer = ref != 0 && (state != MQ_RQ_IDLE || !slot->issue_ns);
	return 0;
}

SEC("syscall")
int give_up(struct old *o)
{
	struct block_slot slot = table.slots[o->at & (BLOCK_SLOTS - 1)];

	o->answer = slot.issue_ns == o->issue_ns && block_remove(&table, o->at, o->key, bucket_mask);
	if (o->answer)
		lost_end(&slot, BLOCK_AGED);
	return 0;
}

#include "blockio_plain.h"
