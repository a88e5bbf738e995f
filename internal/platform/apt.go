package platform

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/wait"
)

// packages returns the .deb files to build from: those of the options, or those of apt.
func (b *builder) packages(ctx context.Context) ([]Package, error) {
	if len(b.Debs) > 0 {
		var all []Package
		for _, path := range b.Debs {
			p, err := localPackage(path)
			if err != nil {
				return nil, err
			}
			all = append(all, p)
		}
		return all, nil
	}
	kernel, err := b.kernelPackage(ctx)
	if err != nil {
		return nil, err
	}
	libs, err := b.libraryPackages(ctx)
	if err != nil {
		return nil, err
	}
	names := slices.Concat([]string{kernel, "ca-certificates"}, programPackages(), libs, b.Firmware)
	return b.download(ctx, names)
}

var debName = regexp.MustCompile(`^([a-z0-9][a-z0-9+.-]*)_([^_]+)_[a-z0-9]+\.deb$`)

// localPackage describes a .deb by its file name, which consists of package, version and architecture.
func localPackage(path string) (Package, error) {
	sum, err := digestFile(path)
	if err != nil {
		return Package{}, err
	}
	p := Package{Name: strings.TrimSuffix(filepath.Base(path), ".deb"), SHA256: sum, path: path}
	if m := debName.FindStringSubmatch(filepath.Base(path)); m != nil {
		p.Name = m[1]
		if p.Version, err = url.PathUnescape(m[2]); err != nil {
			p.Version = m[2]
		}
	}
	return p, nil
}

func digestFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

var kernelDepends = regexp.MustCompile(`(?m)^\s+(?:Pre)?Depends: (linux-image-[a-z0-9.+-]+)$`)

// kernelPackage follows a meta-package (linux-image-amd64) to the package that holds the kernel.
func (b *builder) kernelPackage(ctx context.Context) (string, error) {
	name := b.Kernel
	for range 3 { // chains such as that of linux-image-generic have two links
		out, err := b.apt(ctx, "apt-cache", "depends", "--important", name)
		if err != nil {
			return "", err
		}
		m := kernelDepends.FindSubmatch(out)
		if m == nil {
			break
		}
		name = string(m[1])
	}
	return name, nil
}

var libDepends = regexp.MustCompile(`(?m)^\s+(?:Pre)?Depends: (lib[a-z0-9.+-]+)$`)

// libraryPackages returns the packages that hold the programs' libraries: the lib* packages that theirs depend on, and
// those that these depend on.
func (b *builder) libraryPackages(ctx context.Context) ([]string, error) {
	var libs []string
	for next := programPackages(); len(next) > 0; {
		out, err := b.apt(ctx, "apt-cache", append([]string{"depends", "--important"}, next...)...)
		if err != nil {
			return nil, err
		}
		next = nil
		for _, m := range libDepends.FindAllSubmatch(out, -1) {
			if lib := string(m[1]); !slices.Contains(libs, lib) {
				libs, next = append(libs, lib), append(next, lib)
			}
		}
	}
	slices.Sort(libs)
	return libs, nil
}

// uriLine is one line of apt-get download --print-uris.
var uriLine = regexp.MustCompile(`(?m)^'[^']+' (\S+\.deb) \d+ SHA256:([0-9a-f]{64})$`)

// download downloads packages into the cache by apt, which verifies the archive's signature. A package that the cache
// has is recognized by its digest.
func (b *builder) download(ctx context.Context, names []string) ([]Package, error) {
	b.report("find packages")
	out, err := b.apt(ctx, "apt-get", append([]string{"download", "--print-uris"}, names...)...)
	if err != nil {
		return nil, err
	}
	lines := uriLine.FindAllSubmatch(out, -1)
	if len(lines) != len(names) {
		return nil, fmt.Errorf("%w: apt has %d of the packages %s", trivet.ErrUnavailable, len(lines),
			strings.Join(names, " "))
	}
	dir := filepath.Join(b.CacheDir, "debs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var all []Package
	for _, line := range lines { // in apt's order, by name
		p, err := b.downloadOne(ctx, dir, string(line[1]), string(line[2]))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// A download is tried this often, with this pause before the second attempt; the later ones double.
const (
	downloadAttempts = 5
	downloadPause    = time.Second
)

// transientMessage matches the messages of apt where another attempt may succeed: of name lookups and connections.
var transientMessage = regexp.MustCompile(`(?i)resolv|connect|timed out|timeout|temporar|reset by peer| 50[0234] `)

func isTransient(err error) bool { return transientMessage.MatchString(err.Error()) }

func (b *builder) downloadOne(ctx context.Context, dir, file, digest string) (Package, error) {
	m := debName.FindStringSubmatch(file)
	if m == nil {
		return Package{}, fmt.Errorf("%w: apt reports a package file %q", trivet.ErrInvalid, file)
	}
	name, path := m[1], filepath.Join(dir, file)
	if p, err := localPackage(path); err == nil && p.SHA256 == digest {
		return p, nil
	}
	b.report("download %s", file)
	tmp, err := os.MkdirTemp(dir, "get-*") // two builds may download concurrently
	if err != nil {
		return Package{}, err
	}
	defer os.RemoveAll(tmp)
	err = wait.Retry(ctx, downloadAttempts, downloadPause, isTransient, func() error {
		_, err := b.aptIn(ctx, tmp, "apt-get", "download", name)
		return err
	})
	if err != nil {
		return Package{}, err
	}
	if err := os.Rename(filepath.Join(tmp, file), path); err != nil {
		return Package{}, err
	}
	p, err := localPackage(path)
	if err == nil && p.SHA256 != digest {
		err = fmt.Errorf("%w: %s has digest %s, not %s", trivet.ErrInvalid, file, p.SHA256, digest)
	}
	return p, err
}

func (b *builder) apt(ctx context.Context, program string, args ...string) ([]byte, error) {
	return b.aptIn(ctx, "", program, args...)
}

// aptIn runs one of apt's programs in a directory, in the C locale. Its error includes the program's message.
func (b *builder) aptIn(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	common := []string{"-o", "APT::Architecture=" + b.Arch, "-o", "APT::Sandbox::User=root", "-q"}
	cmd := exec.CommandContext(ctx, program, append(common, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("%w: %s is missing; on a host without apt, pass the packages as files",
			trivet.ErrUnavailable, program)
	}
	return nil, fmt.Errorf("%w: %s: %s (is `apt-get update` needed?)", trivet.ErrUnavailable, cmd,
		lastError(&stderr, err))
}

// lastError returns the last line that apt marks as an error.
func lastError(stderr *bytes.Buffer, err error) string {
	last := err.Error()
	for s := bufio.NewScanner(stderr); s.Scan(); {
		if strings.HasPrefix(s.Text(), "E: ") {
			last = s.Text()
		}
	}
	return last
}
