/* Types of the kernel that target.h does not have, and what differs between processors. */
#pragma once

struct super_block {
	__u32 s_dev;
} READ_AS_FOUND;

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
} READ_AS_FOUND;

struct address_space {
	struct inode *host;
} READ_AS_FOUND;

struct folio {
	struct address_space *mapping;
	unsigned long index;
	unsigned long _flags_1;
} READ_AS_FOUND;

struct folio___early { /* 5.16 to 6.5 */
	unsigned char _folio_order;
} READ_AS_FOUND;

struct page {
	unsigned long compound_head;
	struct address_space *mapping;
} READ_AS_FOUND;

struct page___info { /* newer than 6.18 */
	unsigned long compound_info;
} READ_AS_FOUND;

struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len;
	unsigned int bv_offset;
} READ_AS_FOUND;

struct bvec_iter {
	unsigned int bi_size;
	unsigned int bi_idx;
	unsigned int bi_bvec_done;
} READ_AS_FOUND;

struct bio {
	struct bio *bi_next;
	struct bvec_iter bi_iter;
	struct bio_vec *bi_io_vec;
} READ_AS_FOUND;

struct block_device {
	__u64 bd_start_sect;
	__u32 bd_dev;
} READ_AS_FOUND;

struct request {
	unsigned int cmd_flags;
	unsigned int __data_len;
	__u64 __sector;
	struct bio *bio;
	struct block_device *part;
} READ_AS_FOUND;

enum pageflags { PG_head = 6 };

#if defined(__TARGET_ARCH_x86)
#define FRAME_WORDS 21
#define FROM_KERNEL(frame) (((frame)->word[17] & 3) == 0) /* cs */
struct pt_regs___here {
	unsigned long orig_ax;
} READ_AS_FOUND;
#define CALL_OF(regs) ((__u32)BPF_CORE_READ((struct pt_regs___here *)(regs), orig_ax))
#elif defined(__TARGET_ARCH_arm64)
#define FRAME_WORDS 34
#define FROM_KERNEL(frame) (((frame)->word[33] & 15) != 0) /* pstate */
struct pt_regs___here {
	int syscallno;
} READ_AS_FOUND;
#define CALL_OF(regs) ((__u32)BPF_CORE_READ((struct pt_regs___here *)(regs), syscallno))
#else
#error "resource/filemap knows the registers of x86 and arm64"
#endif

struct fault_frame { /* struct bpf_perf_event_data */
	__u64 word[FRAME_WORDS];
	__u64 sample_period;
	__u64 address;
};

#define TASK_UNINTERRUPTIBLE 2
#define TASK_DEAD 128
#define EXIT_STATES 48 /* what the plain tracepoint reports for a dead task */
#define REQ_OP_MASK 255
#define REQ_OP_READ 0
#define PAGE_MAPPING_FLAGS 3 /* of memory that is no file's */
#define MAX_BIOS 8

