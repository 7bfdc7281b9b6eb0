package rpm

// Tags of the header with sums and signatures.
const (
	SigDSA              = 267
	SigRSA              = 268
	SigSHA1             = 269 // of the other header
	SigLongSize         = 270
	SigLongPlainSize    = 271
	SigSHA256           = 273
	SigFileSignatures   = 274
	SigVeritySignatures = 276
	SigOpenPGP          = 278
	SigSHA3             = 279
	SigSize             = 1000 // of the other header and the payload
	SigPGP              = 1002
	SigMD5              = 1004 // of both
	SigGPG              = 1005
	SigPGP5             = 1006
	SigPlainSize        = 1007 // of the payload before it is compressed
)

// Tags of the header that describes the package. "Plain" is the payload before it is compressed.
const (
	TagSize           = 1009 // of all files
	TagFileSizes      = 1028
	TagFileModes      = 1030
	TagFileDigests    = 1035
	TagFileFlags      = 1037
	TagPlainSize      = 1046
	TagFileDevices    = 1095
	TagFileInodes     = 1096
	TagDirIndexes     = 1116
	TagBaseNames      = 1117
	TagDirNames       = 1118
	TagPayloadFormat  = 1124
	TagCompressor     = 1125
	TagLongFileSizes  = 5008 // in the place of the other sizes, if one of them is 4 GiB or more
	TagLongSize       = 5009
	TagDigestAlgo     = 5011 // of files
	TagFileSignatures = 5090
	TagPayloadSHA256  = 5092
	TagPayloadAlgo    = 5093 // of the one before
	TagPlainSHA256    = 5097
	TagPayloadSize    = 5112
	TagPayloadPlain   = 5113
	TagPayloadSHA512  = 5121
	TagPlainSHA512    = 5122
	TagPayloadSHA3    = 5123
	TagPlainSHA3      = 5124
)

// SHA256 is an algorithm by the number that OpenPGP has for it.
const SHA256 = 8

// FlagConfig is the flag of a configuration file.
const FlagConfig = 1

const flagGhost = 1 << 6 // it belongs to the package, and is not in it
