/* Calls of llama.cpp's library by a running process, as the programs of calls.bpf.c send them.
 * resource/process/calls_event.go has the same layout. */
#pragma once

#define CALL_RUNS 16 /* of rows that follow one another in one sequence; further ones are counted as beyond */

enum call_kind {
	CALL_BEGIN = 1, /* of a batch: llama_process, llama_decode, llama_encode */
	CALL_END = 2,
	CALL_SHIFT = 3, /* of positions: sequence and difference are those of the first run */
};

struct call_run {
	__s32 seq;
	__s32 pos; /* of the first row; -1: llama.cpp chooses it */
	__u32 rows;
	__u32 outputs; /* rows whose logits were asked for */
};

struct call_event {
	__u64 at; /* CLOCK_MONOTONIC, ns */
	__u64 context; /* of CALL_BEGIN: address */
	__u32 tid;
	__u32 kind;
	__s32 result; /* of CALL_END */
	__u32 rows;
	__u32 outputs;
	__u32 beyond; /* rows in no run */
	__u32 runs_n;
	__u32 extended; /* the rows are those of a llama_batch_ext */
	struct call_run runs[CALL_RUNS];
};
