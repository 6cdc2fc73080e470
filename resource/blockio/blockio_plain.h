/* The same where the kernel has no BTF: the requests of plain tracepoints have no address; device, sector and operation
 * identify them. Partitions, the task of a request, its time in the queue and merges of bios are not known here. */
#pragma once

/* Where the fields of the tracepoints lie: kernels differ. */
const volatile __u32 issue_bytes_at = 28, issue_text_at = 32;
const volatile __u32 complete_error_at = 28, complete_text_at = 32, requeue_text_at = 28;

/* All of them begin like this. */
struct plain_args {
	__u64 common;
	__u32 dev;
	__u32 hole;
	__u64 sector;
	__u32 nr_sector;
};

static __always_inline __u32 plain_u32(const void *args, __u32 at)
{
	__u32 v = 0;

	bpf_probe_read_kernel(&v, sizeof v, (const char *)args + at);
	return v;
}

static __always_inline __u64 plain_key(const struct plain_args *args, __u32 text_at, unsigned *op)
{
	char text[2] = {};

	bpf_probe_read_kernel(text, sizeof text, (const char *)args + text_at);
	*op = block_op_of_text(text[0], text[1]);
	return block_key_of(args->dev, args->sector, *op);
}

SEC("tracepoint/block/block_rq_issue")
int on_issue_plain(struct plain_args *args)
{
	struct place p = { args->dev, args->dev };
	struct block_row want = {};
	unsigned op;
	__u64 key = plain_key(args, issue_text_at, &op);
	__u32 row;
	int at;

	if (!wanted_device(p) || !wanted_current())
		return FOR_OTHERS_TOO;
	want.op = op;
	want.device = args->dev;
	want.tgid = bpf_get_current_pid_tgid() >> 32;
	want.cgroup = bpf_get_current_cgroup_id();
	bpf_get_current_comm(want.comm, sizeof want.comm);
	row = table_row(&want, args->dev);
	at = place(key, row, disk_of(row));
	if (at < 0)
		return FOR_OTHERS_TOO;
	block_issued(&table, at, bpf_ktime_get_ns(), plain_u32(args, issue_bytes_at));
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/block/block_rq_complete")
int on_complete_plain(struct plain_args *args)
{
	unsigned op;
	__u64 key = plain_key(args, complete_text_at, &op);
	int at = table_find(key);
	struct block_counts *c;
	struct block_slot slot;
	struct block_end end = {};

	if (at < 0) {
		if (args->nr_sector && !by_device && !(target_by_pid || target_by_comm || target_by_cgroup))
			__sync_fetch_and_add(&table.lost[BLOCK_UNMATCHED], 1);
		return FOR_OTHERS_TOO;
	}
	if (!take(at, key, &slot))
		return FOR_OTHERS_TOO;
	end.now = bpf_ktime_get_ns();
	end.bytes = args->nr_sector << 9;
	end.error = plain_u32(args, complete_error_at) != 0;
	c = counts_of(bpf_get_smp_processor_id(), slot.row);
	if (c)
		BLOCK_COUNT(c, &slot, &end, BLOCK_PLAINLY);
	return FOR_OTHERS_TOO;
}

SEC("tracepoint/block/block_rq_requeue")
int on_requeue_plain(struct plain_args *args)
{
	unsigned op;
	__u64 key = plain_key(args, requeue_text_at, &op);
	int at = table_find(key);
	struct block_slot slot;

	if (at >= 0 && take(at, key, &slot))
		count_requeue(slot.row);
	return FOR_OTHERS_TOO;
}
