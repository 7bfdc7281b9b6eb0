package outfile

import (
	"os"

	"golang.org/x/sys/windows"
)

// scratch makes a file that is gone when it is closed.
func scratch(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|windows.FILE_FLAG_DELETE_ON_CLOSE, 0o600)
}
