/* Block requests that read files, from issue to completion. A part of filemap.bpf.c, whose maps and functions it
 * uses. */
#pragma once

struct issued {
	__u64 ns, sector, ino, first, last, bytes;
	__u32 dev, bdev, tid, tgid, partly, zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct issued);
} requests SEC(".maps");

/* head_of is the address of the first page of the folio that a page belongs to. What the kernel keeps of it in the
 * other pages is that address and 1, or, in newer kernels, a mask that makes it of the page's own address, and 1; no
 * page lies where masks do. */
static __always_inline __u64 head_of(struct page *page)
{
	__u64 info = 0;

	if (bpf_core_field_exists(page->compound_head))
		bpf_core_read(&info, sizeof info, &page->compound_head);
	else
		bpf_core_read(&info, sizeof info, &((struct page___info *)page)->compound_info);
	if (!(info & 1))
		return (__u64)page;
	return info >> 32 == 0xffffffff ? (__u64)page & info : info - 1;
}

/* file_of finds the file page that a bio begins with. Pages and mappings are read as numbers, because pointers' bits
 * cannot be asked for; only what leads from there to the file is followed by its types, which is faster. */
static __always_inline bool file_of(struct bio *bio, struct file_key *key, __u64 *page)
{
	struct bio_vec *vec = bio->bi_io_vec;
	__u32 at = bio->bi_iter.bi_idx & 1023;
	struct page *data = NULL;
	struct folio *folio;
	__u64 head, mapping = 0;

	bpf_core_read(&data, sizeof data, &vec[at].bv_page);
	if (!data)
		return false;
	head = head_of(data);
	folio = (struct folio *)head;
	bpf_core_read(&mapping, sizeof mapping, &folio->mapping);
	if (!mapping || mapping & PAGE_MAPPING_FLAGS)
		return false;
	*page = BPF_CORE_READ(folio, index) + ((__u64)data - head) / bpf_core_type_size(struct page);
	if (at == 0 && head == (__u64)data) {
		struct inode *inode = vec->bv_page->mapping->host;

		key->ino = inode->i_ino;
		key->dev = inode->i_sb->s_dev;
	} else {
		key->ino = BPF_CORE_READ((struct address_space *)mapping, host, i_ino);
		key->dev = BPF_CORE_READ((struct address_space *)mapping, host, i_sb, s_dev);
	}
	return true;
}

const volatile __u32 page_shift = 12;

/* range follows a request's bios behind the first as long as they go on in the same file without a gap. */
static __always_inline void range(struct request *rq, struct issued *r, const struct file_key *key)
{
	struct file_key next = {};
	struct bio *bio = rq->bio;
	__u64 page, bytes;
	int i;

	if (!bio)
		return;
	bytes = bio->bi_iter.bi_size;
	for (i = 1; i < MAX_BIOS && bytes < r->bytes; i++) {
		bio = bio->bi_next;
		if (!bio || !file_of(bio, &next, &page) || next.ino != key->ino || next.dev != key->dev || page != r->first + (bytes >> page_shift))
			break;
		bytes += bio->bi_iter.bi_size;
	}
	r->partly = bytes < r->bytes;
	r->last = r->first + ((bytes - 1) >> page_shift);
}

static __always_inline void completed(__u64 pointer, struct issued *r, __u32 flags)
{
	struct wait_event *e = reserve(WAIT_REQUEST, flags | (r->partly ? WAIT_PARTLY : 0));

	if (e) {
		e->begin_ns = r->ns;
		e->end_ns = bpf_ktime_get_ns();
		e->at = r->sector;
		e->dev = r->dev;
		e->ino = r->ino;
		e->first = r->first;
		e->last = r->last;
		e->bytes = r->bytes;
		e->bdev = r->bdev;
		e->tid = r->tid;
		e->tgid = r->tgid;
		submit(e);
	}
	bpf_map_delete_elem(&requests, &pointer);
}

/* The thread that makes a request is seen when it is made; who hands it to the device may be another. */
SEC("tp_btf/block_io_start")
int BPF_PROG(on_start, struct request *rq)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 pointer = (__u64)rq;
	struct issued *before = bpf_map_lookup_elem(&requests, &pointer);

	if (before && before->ns)
		completed(pointer, before, WAIT_UNSEEN); /* of what had this address before */
	if ((rq->cmd_flags & REQ_OP_MASK) == REQ_OP_READ && wanted(task)) {
		struct issued r = { .tid = task->pid, .tgid = task->tgid };

		thread(); /* it may wait for the request next */
		if (bpf_map_update_elem(&requests, &pointer, &r, BPF_ANY))
			count(LOST_REQUESTS);
	} else if (before && !before->ns) {
		bpf_map_delete_elem(&requests, &pointer);
	}
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(on_issue, struct request *rq)
{
	struct issued r = {}, *started;
	struct file_key key = {};
	__u64 page = 0, pointer = (__u64)rq;
	bool known_file;

	if ((rq->cmd_flags & REQ_OP_MASK) != REQ_OP_READ || !rq->__data_len)
		return 0;
	started = bpf_map_lookup_elem(&requests, &pointer);
	known_file = rq->bio && file_of(rq->bio, &key, &page);
	if (started) {
		r.tid = started->tid;
		r.tgid = started->tgid;
	} else if (!known_file || !bpf_map_lookup_elem(&files, &key)) {
		return 0;
	}
	r.bytes = rq->__data_len;
	if (known_file) {
		r.dev = key.dev;
		r.ino = key.ino;
		r.first = page;
		range(rq, &r, &key);
	}
	/* One that the device was too busy for is issued again, and may have taken up others meanwhile: it is as large as
	 * now, and as old as then. */
	r.ns = started && started->ns ? started->ns : bpf_ktime_get_ns();
	r.sector = rq->__sector;
	if (rq->part) {
		r.bdev = rq->part->bd_dev;
		r.sector -= rq->part->bd_start_sect;
	}
	if (bpf_map_update_elem(&requests, &pointer, &r, BPF_ANY))
		count(LOST_REQUESTS);
	return 0;
}

/* The request becomes part of the one before it. */
SEC("tp_btf/block_rq_merge")
int BPF_PROG(on_merge, struct request *rq)
{
	__u64 pointer = (__u64)rq;

	if (bpf_map_lookup_elem(&requests, &pointer))
		bpf_map_delete_elem(&requests, &pointer);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_complete, struct request *rq, int error, unsigned int bytes)
{
	__u64 pointer = (__u64)rq;
	struct issued *r = bpf_map_lookup_elem(&requests, &pointer);

	if (!r || !r->ns || (!error && bytes < rq->__data_len))
		return 0; /* the rest of it comes later */
	if (bytes > r->bytes) { /* it took up others that were not seen to be issued with it */
		struct file_key key = { .ino = r->ino, .dev = r->dev };

		r->bytes = bytes;
		if (r->dev)
			range(rq, r, &key);
	}
	completed(pointer, r, error ? WAIT_FAILED : 0);
	return 0;
}

/* What on_complete has not seen: under load some completions were seen here alone. */
SEC("tp_btf/block_io_done")
int BPF_PROG(on_done, struct request *rq)
{
	__u64 pointer = (__u64)rq;
	struct issued *r = bpf_map_lookup_elem(&requests, &pointer);

	if (r && r->ns)
		completed(pointer, r, 0);
	return 0;
}

