package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// checkReadable reads the files of a member's store from the disk, before etcd does.
//
// What the kernel has in its cache of them may not be on the disk: after a sync that failed, it takes the bytes for
// written, and a start that reads them there would acknowledge what the next loss of power takes. So they are dropped.
//
// The database is read to its end. etcd maps it with all of its pages, and where the disk cannot read one, the kernel
// tries that without end (Linux 6.18, mm_populate); a page that is read later ends the process by SIGBUS. Neither has an
// error that names the file.
func checkReadable(ctx context.Context, dir string) error {
	member := filepath.Join(dir, "etcd", "member")
	for _, pattern := range []string{"wal/*.wal", "snap/*.snap", "snap/db"} {
		files, err := filepath.Glob(filepath.Join(member, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := checkFile(ctx, file, pattern == "snap/db"); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkFile drops what is cached of a file, and may read it to its end.
func checkFile(ctx context.Context, path string, read bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil { // only what is written can be dropped
		return err
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // a file system without a cache needs none
	b := make([]byte, 1<<20)
	for at := int64(0); read; {
		n, err := f.ReadAt(b, at)
		at += int64(n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%w: behind its first %d bytes", err, at)
		}
	}
	return nil
}
