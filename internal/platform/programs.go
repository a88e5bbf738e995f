package platform

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/trivet-project/trivet"
)

// checkBinary refuses a trivet binary that cannot run in the installer OS: it must be static and for the right
// architecture.
func checkBinary(file string, machine arch) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return checkProgram(file, f, machine)
}

func checkProgram(file string, f io.ReaderAt, machine arch) error {
	e, err := elf.NewFile(f)
	if err != nil {
		return fmt.Errorf("%w: %s is not an ELF program: %w", trivet.ErrInvalid, file, err)
	}
	if e.Machine != machine.elf {
		return fmt.Errorf("%w: %s is for %s, not %s", trivet.ErrInvalid, file, e.Machine, machine.elf)
	}
	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%w: %s is dynamically linked; build it with CGO_ENABLED=0", trivet.ErrInvalid, file)
		}
	}
	return nil
}

// addPrograms adds the programs, their libraries and their dynamic linker.
func (b *builder) addPrograms() error {
	for _, p := range Programs {
		for _, name := range p.Paths {
			if err := b.addProgram(p.Package, name); err != nil {
				return err
			}
		}
	}
	if conf, err := b.find("etc/mke2fs.conf"); err == nil {
		b.files.add("etc/mke2fs.conf", 0o644, conf)
	}
	for name, target := range links {
		b.files.link(name, target)
	}
	return nil
}

func (b *builder) addProgram(pkg, name string) error {
	data, err := b.find(name, "usr/"+name)
	if err != nil {
		return fmt.Errorf("program of package %s: %w", pkg, err)
	}
	b.files.add(name, 0o755, data)
	return b.addLibraries(name, data)
}

// addLibraries adds the dynamic linker and the libraries of an ELF file, recursively. Libraries are added to /lib by
// their soname; the dynamic linker searches there last.
func (b *builder) addLibraries(name string, data []byte) error {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("%w: %s: %w", trivet.ErrInvalid, name, err)
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%w: %s: %w", trivet.ErrInvalid, name, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 256 {
			interp := make([]byte, p.Filesz)
			if _, err := p.ReadAt(interp, 0); err != nil {
				return fmt.Errorf("%w: %s: %w", trivet.ErrInvalid, name, err)
			}
			linker := strings.TrimPrefix(path.Clean(strings.TrimRight(string(interp), "\x00")), "/")
			if err := b.addLibrary(linker, path.Base(linker)); err != nil {
				return err
			}
		}
	}
	for _, soname := range needed {
		if err := b.addLibrary("lib/"+path.Base(soname), path.Base(soname)); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) addLibrary(name, soname string) error {
	if b.libraries[soname] { // also the dynamic linker, which libc.so.6 names as a library
		return nil
	}
	b.libraries[soname] = true
	var paths []string
	triplet := b.machine.triplet
	for _, dir := range []string{"lib/" + triplet, "usr/lib/" + triplet, "lib", "usr/lib", "lib64"} {
		paths = append(paths, path.Join(dir, soname))
	}
	data, err := b.find(paths...)
	if err != nil {
		return fmt.Errorf("library: %w", err)
	}
	b.files.add(name, 0o755, data)
	return b.addLibraries(name, data)
}

// find returns the content of the first of these files that a package has.
func (b *builder) find(names ...string) ([]byte, error) {
	for _, name := range names {
		for _, t := range b.trees {
			if data, err := t.read(name); err == nil {
				return data, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: no package has %s", trivet.ErrNotFound, names[0])
}
