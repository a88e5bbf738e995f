package osinit

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// maxLine is the longest record of the kernel's log, in bytes; longer lines are split.
const maxLine = 900

// console writes lines to the kernel's log, which the kernel prints on every console, serial and screen. Their level
// is warning: it is shown with loglevel=5, which hides most messages of the kernel.
type console struct {
	mu sync.Mutex
	// guards following
	out io.Writer
}

// newConsole must be called after /dev is mounted.
func newConsole() *console {
	_ = os.WriteFile("/proc/sys/kernel/printk_devkmsg", []byte("on\n"), 0) // else all but 10 lines in 5 s are dropped
	kmsg, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if err != nil {
		return &console{out: os.Stderr}
	}
	return &console{out: &kmsgWriter{kmsg}}
}

func (c *console) printf(format string, args ...any) {
	c.line("trivet: " + fmt.Sprintf(format, args...))
}

func (c *console) line(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, part := range cut(text, maxLine) {
		fmt.Fprintln(c.out, part)
	}
}

// kmsgWriter adds the level to each write: 1<<3 is facility user, 4 is warning.
type kmsgWriter struct{ out io.Writer }

func (k *kmsgWriter) Write(p []byte) (int, error) {
	_, err := k.out.Write(append([]byte("<12>"), p...))
	return len(p), err
}

// cut splits a line into printable pieces of at most size bytes.
func cut(line string, size int) []string {
	line = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, line)
	var parts []string
	for len(line) > size {
		parts, line = append(parts, line[:size]), line[size:]
	}
	return append(parts, line)
}

// tail keeps the most useful part of an agent's output: the beginning of its panic or, without one, the end.
type tail struct {
	text    string
	crashed bool
}

const maxTail = 4 << 10

func (t *tail) add(line string) {
	if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
		t.text, t.crashed = "", true
	}
	t.text += line + "\n"
	if over := len(t.text) - maxTail; over > 0 && t.crashed {
		t.text = t.text[:maxTail]
	} else if over > 0 {
		t.text = t.text[over:]
	}
}

// follow copies lines to the console until r ends, and returns their tail. Lines of over 64 KiB are split.
func (c *console) follow(r io.Reader) string {
	var last tail
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if text := strings.TrimRight(string(line), "\r\n"); text != "" {
			c.line(text)
			last.add(text)
		}
		if err != nil && err != bufio.ErrBufferFull {
			return last.text
		}
	}
}
