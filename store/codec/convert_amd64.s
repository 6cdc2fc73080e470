//go:build amd64 && !noasm

#include "textflag.h"

// Bounds on absolute bits, as in convert.go; VPCMPGTD compares signed, which is right for them.
DATA bounds<>+0(SB)/4, $0x7fffffff  // absolute value
DATA bounds<>+4(SB)/4, $0x477fefff  // above: binary16 is infinite
DATA bounds<>+8(SB)/4, $0x7f7fffff  // above: not finite
DATA bounds<>+12(SB)/4, $0x33000000 // up to: binary16 is zero
DATA bounds<>+16(SB)/4, $0x7f800000 // above: not a number
DATA bounds<>+20(SB)/4, $0x80000000 // sign
DATA bounds<>+24(SB)/4, $0x7fc00000 // quiet NaN
DATA bounds<>+28(SB)/4, $0x7f7f7fff // above: bfloat16 is infinite
DATA bounds<>+32(SB)/4, $0x00008000 // up to: bfloat16 is zero
DATA bounds<>+36(SB)/4, $0x00007fff // half a bfloat16 unit, less one
DATA bounds<>+40(SB)/4, $0x00400000 // quiet bit
GLOBL bounds<>(SB), RODATA|NOPTR, $44

// SUM adds the eight lanes of y into r, using x as its low half.
#define SUM(y, x, r) \
	VEXTRACTI128 $1, y, X0 \
	VPADDD       X0, x, x  \
	VPSHUFD      $0x4e, x, X0 \
	VPADDD       X0, x, x  \
	VPSHUFD      $0xb1, x, X0 \
	VPADDD       X0, x, x  \
	VMOVD        x, r

// func f16AVX2(dst, src *byte, groups int) (saturated, underflow uint64)
TEXT ·f16AVX2(SB), NOSPLIT, $0-40
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         groups+16(FP), CX
	VPBROADCASTD bounds<>+0(SB), Y15
	VPBROADCASTD bounds<>+4(SB), Y14
	VPBROADCASTD bounds<>+8(SB), Y13
	VPBROADCASTD bounds<>+12(SB), Y12
	VPBROADCASTD bounds<>+16(SB), Y11
	VPBROADCASTD bounds<>+20(SB), Y10
	VPBROADCASTD bounds<>+24(SB), Y9
	VPXOR        Y8, Y8, Y8
	VPXOR        Y7, Y7, Y7 // saturated
	VPXOR        Y6, Y6, Y6 // underflow

f16loop:
	VMOVDQU   (SI), Y0
	VPAND     Y15, Y0, Y1
	VPCMPGTD  Y14, Y1, Y2
	VPCMPGTD  Y13, Y1, Y3
	VPSUBD    Y2, Y7, Y7
	VPADDD    Y3, Y7, Y7
	VPCMPGTD  Y8, Y1, Y4
	VPCMPGTD  Y12, Y1, Y5
	VPSUBD    Y4, Y6, Y6
	VPADDD    Y5, Y6, Y6
	VPCMPGTD  Y11, Y1, Y2
	VPAND     Y10, Y0, Y3
	VPOR      Y9, Y3, Y3
	VBLENDVPS Y2, Y3, Y0, Y0
	VCVTPS2PH $0, Y0, (DI)
	ADDQ      $32, SI
	ADDQ      $16, DI
	DECQ      CX
	JNZ       f16loop

	SUM(Y7, X7, AX)
	SUM(Y6, X6, BX)
	VZEROUPPER
	MOVQ AX, saturated+24(FP)
	MOVQ BX, underflow+32(FP)
	RET

// func widenF16AVX2(dst *float32, src *byte, groups int)
TEXT ·widenF16AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ groups+16(FP), CX

widenloop:
	VCVTPH2PS (SI), Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	DECQ      CX
	JNZ       widenloop
	VZEROUPPER
	RET

// BF16 rounds the eight elements of v, leaving 16 bits in each lane; counts into Y7 and Y6.
#define BF16(v) \
	VPAND     Y15, v, Y2    \
	VPCMPGTD  Y14, Y2, Y3   \
	VPCMPGTD  Y13, Y2, Y4   \
	VPSUBD    Y3, Y7, Y7    \
	VPADDD    Y4, Y7, Y7    \
	VPCMPGTD  Y8, Y2, Y3    \
	VPCMPGTD  Y12, Y2, Y4   \
	VPSUBD    Y3, Y6, Y6    \
	VPADDD    Y4, Y6, Y6    \
	VPCMPGTD  Y11, Y2, Y2   \
	VPSLLD    $15, v, Y3    \
	VPSRLD    $31, Y3, Y3   \
	VPADDD    v, Y3, Y3     \
	VPADDD    Y10, Y3, Y3   \
	VPOR      Y9, v, v      \
	VBLENDVPS Y2, v, Y3, v  \
	VPSRLD    $16, v, v

// func bf16AVX2(dst, src *byte, groups int) (saturated, underflow uint64)
TEXT ·bf16AVX2(SB), NOSPLIT, $0-40
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         groups+16(FP), CX
	VPBROADCASTD bounds<>+0(SB), Y15
	VPBROADCASTD bounds<>+28(SB), Y14
	VPBROADCASTD bounds<>+8(SB), Y13
	VPBROADCASTD bounds<>+32(SB), Y12
	VPBROADCASTD bounds<>+16(SB), Y11
	VPBROADCASTD bounds<>+36(SB), Y10
	VPBROADCASTD bounds<>+40(SB), Y9
	VPXOR        Y8, Y8, Y8
	VPXOR        Y7, Y7, Y7
	VPXOR        Y6, Y6, Y6

bf16loop:
	VMOVDQU   (SI), Y0
	VMOVDQU   32(SI), Y1
	BF16(Y0)
	BF16(Y1)
	VPACKUSDW Y1, Y0, Y0
	VPERMQ    $0xd8, Y0, Y0
	VMOVDQU   Y0, (DI)
	ADDQ      $64, SI
	ADDQ      $32, DI
	DECQ      CX
	JNZ       bf16loop

	SUM(Y7, X7, AX)
	SUM(Y6, X6, BX)
	VZEROUPPER
	MOVQ AX, saturated+24(FP)
	MOVQ BX, underflow+32(FP)
	RET
