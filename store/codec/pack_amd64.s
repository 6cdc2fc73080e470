//go:build amd64 && !noasm

#include "textflag.h"

DATA limits<>+0(SB)/4, $0x7fffffff  // absolute value
DATA limits<>+4(SB)/4, $0x7f7fffff  // above: not finite
DATA limits<>+8(SB)/4, $0x80000000  // −0
DATA limits<>+12(SB)/4, $0x4c000000 // 2^25
DATA limits<>+16(SB)/4, $0xcc000000 // −2^25
GLOBL limits<>(SB), RODATA|NOPTR, $20

// func lookAVX2(part *byte, groups int, s *lookSums)
TEXT ·lookAVX2(SB), NOSPLIT, $0-24
	MOVQ         part+0(FP), SI
	MOVQ         groups+8(FP), CX
	MOVQ         s+16(FP), DI
	VPBROADCASTD limits<>+0(SB), Y15
	VPBROADCASTD limits<>+4(SB), Y14
	VPBROADCASTD limits<>+8(SB), Y13
	VMOVDQU      0(DI), Y6  // largest
	VMOVUPS      32(DI), Y5 // squares
	VMOVDQU      64(DI), Y7 // exceptions

lookloop:
	VMOVDQU  (SI), Y0
	VPAND    Y15, Y0, Y1
	VPCMPGTD Y14, Y1, Y2
	VPCMPEQD Y13, Y0, Y3
	VPOR     Y3, Y2, Y2
	VPSUBD   Y2, Y7, Y7
	VPANDN   Y1, Y2, Y1
	VPMAXSD  Y1, Y6, Y6
	VMULPS   Y1, Y1, Y1
	VADDPS   Y1, Y5, Y5
	ADDQ     $32, SI
	DECQ     CX
	JNZ      lookloop

	VMOVDQU Y6, 0(DI)
	VMOVUPS Y5, 32(DI)
	VMOVDQU Y7, 64(DI)
	VZEROUPPER
	RET

// func quantizeAVX2(q *int32, values *byte, groups int, inverse, step float32, s *quantSums)
TEXT ·quantizeAVX2(SB), NOSPLIT, $0-40
	MOVQ         q+0(FP), DI
	MOVQ         values+8(FP), SI
	MOVQ         groups+16(FP), CX
	VBROADCASTSS inverse+24(FP), Y15
	VBROADCASTSS step+28(FP), Y14
	MOVQ         s+32(FP), DX
	VPBROADCASTD limits<>+0(SB), Y13
	VPBROADCASTD limits<>+12(SB), Y12
	VPBROADCASTD limits<>+16(SB), Y11
	VMOVUPS      0(DX), Y6  // largest error
	VMOVUPS      32(DX), Y5 // squares
	VMOVDQU      64(DX), Y7 // largest multiple

quantizeloop:
	VMOVUPS   (SI), Y0
	VMULPS    Y15, Y0, Y1
	VMINPS    Y12, Y1, Y1
	VMAXPS    Y11, Y1, Y1
	VCVTPS2DQ Y1, Y1
	VMOVDQU   Y1, (DI)
	VCVTDQ2PS Y1, Y2
	VMULPS    Y14, Y2, Y2
	VSUBPS    Y2, Y0, Y2
	VPAND     Y13, Y2, Y3
	VMAXPS    Y3, Y6, Y6
	VMULPS    Y2, Y2, Y2
	VADDPS    Y2, Y5, Y5
	VPABSD    Y1, Y1
	VPMAXSD   Y1, Y7, Y7
	ADDQ      $32, SI
	ADDQ      $32, DI
	DECQ      CX
	JNZ       quantizeloop

	VMOVUPS Y6, 0(DX)
	VMOVUPS Y5, 32(DX)
	VMOVDQU Y7, 64(DX)
	VZEROUPPER
	RET

// func packAVX2(dst *byte, q *int32, groups, width int)
// A vector of eight values becomes two words of four, as wide as they are, in four steps that shift neighbours together. Where the width is
// odd the second word begins in the middle of a byte, whose lower half is the first one's.
TEXT ·packAVX2(SB), NOSPLIT, $0-32
	MOVQ         dst+0(FP), DI
	MOVQ         q+8(FP), SI
	MOVQ         groups+16(FP), R8
	MOVQ         width+24(FP), R9
	MOVQ         R9, CX
	MOVL         $1, AX
	SHLL         CX, AX
	DECL         AX
	VMOVD        AX, X15
	VPBROADCASTD X15, Y15      // the low bits of each value
	VPCMPEQD     Y14, Y14, Y14
	VPSRLQ       $32, Y14, Y14 // the first of two values
	MOVQ         $32, AX
	SUBQ         R9, AX
	VMOVQ        AX, X13       // from the second's place to behind the first
	LEAQ         (R9)(R9*1), AX
	VMOVQ        AX, X12       // two values
	MOVQ         R9, R10
	SHRQ         $1, R10       // where the second word begins
	LEAQ         -4(R9*4), CX  // the first word but for its last four bits
	TESTQ        $1, R9
	JNZ          oddloop

evenloop:
	VPAND        (SI), Y15, Y0
	VPSRLQ       X13, Y0, Y1
	VPAND        Y14, Y0, Y0
	VPOR         Y1, Y0, Y0
	VPSRLDQ      $8, Y0, Y1
	VPSLLQ       X12, Y1, Y1
	VPOR         Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VMOVQ        X0, (DI)
	VMOVQ        X1, (DI)(R10*1)
	ADDQ         $32, SI
	ADDQ         R9, DI
	DECQ         R8
	JNZ          evenloop
	VZEROUPPER
	RET

oddloop:
	VPAND        (SI), Y15, Y0
	VPSRLQ       X13, Y0, Y1
	VPAND        Y14, Y0, Y0
	VPOR         Y1, Y0, Y0
	VPSRLDQ      $8, Y0, Y1
	VPSLLQ       X12, Y1, Y1
	VPOR         Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VMOVQ        X0, AX
	VMOVQ        X1, BX
	MOVQ         AX, (DI)
	SHRQ         CX, AX
	SHLQ         $4, BX
	ORQ          AX, BX
	MOVQ         BX, (DI)(R10*1)
	ADDQ         $32, SI
	ADDQ         R9, DI
	DECQ         R8
	JNZ          oddloop
	VZEROUPPER
	RET
