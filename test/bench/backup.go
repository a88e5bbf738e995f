package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// The blobs of a site for which backups are measured, in bytes, where there is space for them.
const (
	siteBlobs = 20_000_000_000
	blobBytes = 100_000_000
)

// backups measures backups of the head with the records of many machines, without and with the contents of blobs: how
// long one takes, its proof, and the start of another head from it.
func (c *capacity) backups() error {
	dir := filepath.Join(c.b.dir, "backups")
	b := &backups{capacity: c, dir: dir, to: filepath.Join(dir, "to"), key: filepath.Join(dir, "key")}
	if err := os.MkdirAll(b.to, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	key, err := b.run("backup", "key", "--yes")
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.key, []byte(key.out), 0o600); err != nil {
		return err
	}
	if err := b.records(); err != nil {
		return err
	}
	if err := b.contents(); err != nil {
		return err
	}
	return b.restore()
}

type backups struct {
	*capacity
	dir, to, key string
	plain        string // the backup of the records only
	with         string // the one with contents
	blobs        int64  // bytes of them
}

// ran is a command that has ended.
type ran struct {
	out    string
	took   time.Duration
	memory int64 // the most that it had resident, in bytes
}

// run runs a command of the program as the administrator.
func (b *backups) run(args ...string) (r ran, err error) {
	return b.runAs(exec.CommandContext(b.b.ctx, b.b.binary, args...))
}

func (b *backups) runAs(cmd *exec.Cmd) (r ran, err error) {
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	cmd.Env = append(os.Environ(), "TRIVET_ENDPOINTS="+testhead.APIURL(b.heads[0].host), "TRIVET_TRUST="+b.admin.Trust,
		"TRIVET_TOKEN="+b.admin.Token)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return r, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for tick := time.Tick(peakInterval); ; {
		select {
		case err := <-ended:
			if err != nil {
				return r, fmt.Errorf("%s: %w: %s", b.b.shown(cmd.Args[0], cmd.Args[1:]...), err, messages.Bytes())
			}
			r.out, r.took = out.String(), time.Since(began)
			return r, nil
		case <-tick: // getrusage(2) counts the memory of the process that started it, too
			if peak, err := testhead.PeakOf(cmd.Process.Pid); err == nil {
				r.memory = peak
			}
		}
	}
}

// peakInterval is how often the memory of a command is read.
const peakInterval = 20 * time.Millisecond

// create makes a backup, and returns the path of its file.
func (b *backups) create(flags ...string) (path string, r ran, err error) {
	args := append([]string{"backup", "create", "--to", b.to, "-o", "json"}, flags...)
	if r, err = b.run(args...); err != nil {
		return "", r, err
	}
	var made struct{ Name string }
	err = json.Unmarshal([]byte(r.out), &made)
	return filepath.Join(b.to, made.Name), r, err
}

func (b *backups) verify(path string) (ran, error) {
	return b.run("backup", "verify", path, "--key", b.key, "--temp", b.dir)
}

func (b *backups) row(what, unit string, value float64) {
	b.report.add(row{what: what, unit: unit, ours: value})
}

// took reports the time of a command, and its memory.
func (b *backups) took(what string, r ran) {
	b.row(what, "s", r.took.Seconds())
	b.row("memory of that command", "MB", float64(r.memory)/1e6)
}

// records measures a backup without contents.
func (b *backups) records() error {
	before, _, err := b.memory()
	if err != nil {
		return err
	}
	var made, proof ran
	if b.plain, made, err = b.create(); err != nil {
		return err
	}
	after, _, err := b.memory()
	if err != nil {
		return err
	}
	info, err := os.Stat(b.plain)
	if err != nil {
		return err
	}
	if proof, err = b.verify(b.plain); err != nil {
		return err
	}
	b.took("backup of the records", made)
	b.row("memory of the head afterwards, more than before", "MB", (after-before)/1e6)
	b.row("size of the backup", "MB", float64(info.Size())/1e6)
	b.took("proof that it can be restored", proof)
	return nil
}

// contents measures a backup with the contents of blobs, of as many as there is space for three times.
func (b *backups) contents() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(b.dir, &fs); err != nil {
		return err
	}
	free := int64(fs.Bavail) * fs.Bsize
	began, content := time.Now(), make([]byte, blobBytes)
	for b.blobs+blobBytes <= siteBlobs && 4*(b.blobs+blobBytes) <= free {
		rand.Read(content)
		ref, err := b.client.PutBlob(b.b.ctx, bytes.NewReader(content), client.PutOptions{})
		if err != nil {
			return err
		}
		name := fmt.Sprint("content", b.fresh, "-", b.blobs/blobBytes)
		if _, err := client.Of[trivet.Image](b.client).Create(b.b.ctx, &trivet.Image{Meta: trivet.Meta{Name: name},
			Spec: trivet.ImageSpec{Blob: ref, Format: "raw", RawBytes: blobBytes}}); err != nil {
			return err
		}
		b.blobs += blobBytes
	}
	if b.blobs == 0 {
		return errors.New("there is no space for blobs")
	}
	b.row("contents of images that were uploaded", "GB", float64(b.blobs)/1e9)
	b.row("of these a second", "MB/s", float64(b.blobs)/1e6/time.Since(began).Seconds())
	var made, again, proof ran
	var err error
	if b.with, made, err = b.create("--blobs"); err != nil {
		return err
	}
	if _, again, err = b.create("--blobs"); err != nil {
		return err
	}
	if proof, err = b.verify(b.with); err != nil {
		return err
	}
	b.took("backup of records and contents", made)
	b.extrapolated("backup of records and contents", made)
	b.took("another one, to the same directory", again)
	b.took("proof of the first one", proof)
	b.extrapolated("proof of it", proof)
	return nil
}

// extrapolated reports the time for all blobs of a site, as if that of a command were for their contents only.
func (b *backups) extrapolated(what string, r ran) {
	if b.blobs < siteBlobs {
		b.row(fmt.Sprintf("%s, extrapolated to %d GB", what, siteBlobs/1_000_000_000), "s",
			r.took.Seconds()*siteBlobs/float64(b.blobs))
	}
}

// restore measures how long another head takes from each of the backups until it is ready.
func (b *backups) restore() error {
	err := b.restoreFrom(b.plain, "restored", "head restored from the records, until it is ready", under(120))
	if err != nil {
		return err
	}
	return b.restoreFrom(b.with, "restored-with", "head restored with contents, until it is ready", bound{})
}

func (b *backups) restoreFrom(backup, name, what string, limit bound) error {
	m := b.heads[0]
	m.stop()
	dir := filepath.Join(b.dir, name)
	r, err := b.runAs(testhead.Command(ours.namespace, b.b.binary, "recover", "--from-backup", backup, "--key", b.key,
		"--data-dir", dir, "--advertise", m.host, "--yes"))
	if err != nil {
		return err
	}
	began := time.Now()
	m.dir = dir
	if err := b.start(m); err != nil {
		return err
	}
	ready := time.Since(began)
	b.report.add(row{what: what, unit: "s", ours: (r.took + ready).Seconds(), bound: limit})
	b.row("of that the start of the head", "s", ready.Seconds())
	b.row("memory of the command", "MB", float64(r.memory)/1e6)
	return nil
}
