package netboot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/boot"
	"github.com/trivet-project/trivet/internal/tftp"
)

// DefaultIPXEDir is where Debian's package ipxe installs its programs.
const DefaultIPXEDir = "/usr/lib/ipxe"

// programs are the iPXE programs to serve, by the name that machines ask for. Only these names are looked up, so a
// name from the network never becomes part of a path. Debian's directory holds links that lead out of it; they are
// followed.
type programs map[string]string

// findPrograms returns those that a directory has. It fails where those for x86 machines are missing.
func findPrograms(dir string) (programs, error) {
	found := programs{}
	for _, name := range boot.Files {
		path, err := filepath.EvalSymlinks(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("iPXE program %s: %w", name, err)
		}
		found[name] = path
	}
	for _, arch := range []boot.Arch{boot.BIOS, boot.UEFIx64} {
		if found[arch.File()] == "" {
			return nil, &trivet.Error{
				Op:   "find iPXE programs",
				Err:  fmt.Errorf("%w: %s", trivet.ErrNotFound, filepath.Join(dir, arch.File())),
				Hint: "run 'apt-get install ipxe', or name the directory that has them with --ipxe",
			}
		}
	}
	return found, nil
}

// open opens a program by the name that a machine sent.
func (p programs) open(name string) (*os.File, int64, error) {
	path, ok := p[strings.TrimLeft(name, "/")]
	if !ok {
		return nil, 0, fmt.Errorf("boot file %q: %w", name, trivet.ErrNotFound)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("boot file %q: %w", name, err)
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, 0, errors.Join(fmt.Errorf("boot file %q: %w", name, trivet.ErrNotFound), err, f.Close())
	}
	return f, info.Size(), nil
}

// OpenTFTP opens a boot file, as the Open of a [tftp.Server].
func (s *Server) OpenTFTP(_ context.Context, name string, peer netip.AddrPort) (tftp.File, int64, error) {
	if a := peer.Addr().Unmap(); !s.Leases.Serves(a) {
		return nil, 0, fmt.Errorf("%w: %s is in no network of this site", trivet.ErrForbidden, a)
	}
	f, size, err := s.programs.open(name)
	if err != nil {
		return nil, 0, err // not f: a nil *os.File in an interface is not nil
	}
	return f, size, nil
}

// serveProgram is GET /ipxe/{file}, for HTTP boot.
func (s *Server) serveProgram(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	f, _, err := s.programs.open(name)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	// UEFI decides by the type or by the name's extension (UEFI 2.10 section 24.7.3).
	w.Header().Set("Content-Type", "application/efi")
	http.ServeContent(w, r, "", info.ModTime(), f)
}
