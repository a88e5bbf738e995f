package vm

import (
	"context"
	"path/filepath"
	"regexp"
	"testing"
)

// A text is found among control sequences, wherever the machine's output is split.
func TestSerialIsSplit(t *testing.T) {
	const output = "\x1b[2J\x1b[01;01HWelcome \x1b[0;37;40mto\x1b[m \x1b(BGRUB!\r\n"
	for at := range len(output) {
		s, err := newSerial(filepath.Join(t.TempDir(), "console"))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{output[:at], output[at:]} {
			if _, err := s.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Expect(ctx, regexp.MustCompile("^Welcome to GRUB!")); err != nil {
			t.Errorf("split at byte %d: %v", at, err)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
}
