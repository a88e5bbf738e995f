package main

import "syscall"

// wantedFiles is how many files a head may have open, where it can choose: one for each connection.
const wantedFiles = 64 << 10

// raiseFileLimit raises the limit of open files, as far as the user may.
func raiseFileLimit() {
	var own syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &own) != nil || own.Cur >= wantedFiles {
		return
	}
	raised := syscall.Rlimit{Cur: wantedFiles, Max: max(own.Max, wantedFiles)}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised) != nil { // only root may raise Max
		own.Cur = min(own.Max, wantedFiles)
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &own)
	}
}
