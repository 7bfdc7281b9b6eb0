module cfi2sframe/lab

go 1.26.0

require (
	cfi2sframe v0.0.0
	github.com/go-delve/delve v1.27.2
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	github.com/spf13/pflag v1.1.0
	golang.org/x/arch v0.32.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/klauspost/compress v1.20.3 // indirect
	golang.org/x/term v0.47.0 // indirect
	golang.org/x/text v0.40.0 // indirect
)

replace cfi2sframe => ..
