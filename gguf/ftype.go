package gguf

import "fmt"

// FileType is general.file_type: the type of most matrices of a file, numbered as llama.h's llama_ftype.
type FileType uint32

// File types that this project writes; FileType.String knows the others.
const (
	FileF32    FileType = 0
	FileF16    FileType = 1
	FileQ4_0   FileType = 2
	FileQ8_0   FileType = 7
	FileQ5_0   FileType = 8
	FileQ4_K_S FileType = 14
	FileBF16   FileType = 32
)

// fileTypeNames are the names that llama-quantize takes and gives.
var fileTypeNames = map[FileType]string{
	FileF32: "F32", FileF16: "F16", FileQ4_0: "Q4_0", 3: "Q4_1", FileQ8_0: "Q8_0", FileQ5_0: "Q5_0", 9: "Q5_1",
	10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", FileQ4_K_S: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
	17: "Q5_K_M",
	18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL",
	26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", FileBF16: "BF16", 36: "TQ1_0",
	37: "TQ2_0", 38: "MXFP4_MOE", 39: "NVFP4", 40: "Q1_0", 41: "Q2_0",
}

// String is llama-quantize's name of the type, such as "Q8_0" or "Q4_K_M".
func (t FileType) String() string {
	if name, ok := fileTypeNames[t]; ok {
		return name
	}
	return fmt.Sprintf("file type %d", uint32(t))
}
