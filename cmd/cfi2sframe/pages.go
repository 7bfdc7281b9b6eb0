package main

import (
	"os"
	"strconv"
	"time"

	"cfi2sframe/cmd/cfi2sframe/internal/page"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
)

// footer returns the footer of a page about files.
func footer() []string {
	command := report.PrintableMessage(page.Command(os.Args[1:]...))
	return []string{"Made by", thisVersion(), "Date", today(), "Command", command}
}

// today returns the date for pages. For builds that can be repeated, SOURCE_DATE_EPOCH has it in seconds; 0 is none.
func today() string {
	now := time.Now()
	if epoch, ok := os.LookupEnv("SOURCE_DATE_EPOCH"); ok {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || seconds == 0 {
			return ""
		}
		now = time.Unix(seconds, 0)
	}
	return now.UTC().Format("2 January 2006")
}
