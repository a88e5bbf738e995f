package action

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelLog collects what the kernel warns of during a test: it knows of errors that were repeated, or corrected.
type kernelLog struct{ fd int }

// Limits of what is kept of the kernel's messages.
const (
	maxKernelLines = 64
	maxKernelLine  = 300
	maxRecord      = 8192 // bytes that one may have
)

// watchKernel begins to collect; nil where the machine is simulated, or does not show the messages.
func (e *Env) watchKernel() *kernelLog {
	if e.Sys == nil {
		return nil
	}
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	if _, err := unix.Seek(fd, 0, io.SeekEnd); err != nil {
		unix.Close(fd)
		return nil
	}
	return &kernelLog{fd}
}

// report writes what was collected to a log, and ends.
func (k *kernelLog) report(log io.Writer) {
	if k == nil {
		return
	}
	defer unix.Close(k.fd)
	record, lines := make([]byte, maxRecord), 0
	for {
		n, err := unix.Read(k.fd, record)
		if err == unix.EPIPE { // some were overwritten
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		text, ok := kernelWarning(string(record[:n]))
		if !ok {
			continue
		}
		if lines++; lines > maxKernelLines {
			fmt.Fprintln(log, "kernel: and more")
			return
		}
		fmt.Fprintf(log, "kernel: %s\n", text)
	}
}

// kernelWarning returns the text of a record of /dev/kmsg, "PRIORITY,SEQUENCE,TIME,FLAGS;TEXT"; false where it is
// another program's, or no warning.
func kernelWarning(record string) (text string, ok bool) {
	header, text, ok := strings.Cut(record, ";")
	first, _, _ := strings.Cut(header, ",")
	priority, err := strconv.Atoi(first)
	const warning, kernel = 4, 0
	if !ok || err != nil || priority>>3 != kernel || priority&7 > warning {
		return "", false
	}
	text, _, _ = strings.Cut(text, "\n")
	return strings.ToValidUTF8(text[:min(len(text), maxKernelLine)], "?"), true
}
