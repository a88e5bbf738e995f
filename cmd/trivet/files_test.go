package main

import (
	"syscall"
	"testing"
)

// A head that starts with few files allowed raises the limit as far as it may.
func TestRaiseFileLimit(t *testing.T) {
	var was, now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was) })
	low := syscall.Rlimit{Cur: 512, Max: was.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	raiseFileLimit()
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	if want := min(was.Max, wantedFiles); now.Cur < want {
		t.Errorf("the limit was 512 and is %+v", now)
	}
}
