module cfi2sframe

go 1.26.0

require (
	github.com/go-delve/delve v1.27.2
	github.com/klauspost/compress v1.20.3
	github.com/rogpeppe/go-internal v1.16.0
	github.com/spf13/pflag v1.0.10
	golang.org/x/arch v0.32.0
	golang.org/x/sys v0.49.0
)

require golang.org/x/tools v0.26.0 // indirect
