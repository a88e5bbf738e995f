package osinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// loader loads drivers, each at most once.
type loader struct {
	index *Modules
	dir   string

	mu sync.Mutex
	// guards following
	loads map[string]func() error
}

// newLoader reads the indexes of the running kernel. A kernel without modules has none.
func newLoader() (*loader, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, fmt.Errorf("uname: %w", err)
	}
	l := &loader{dir: "/lib/modules/" + unix.ByteSliceToString(u.Release[:]), loads: map[string]func() error{}}
	texts := make([]string, 4)
	for i, name := range []string{"modules.dep", "modules.softdep", "modules.alias", "modules.builtin"} {
		data, err := os.ReadFile(filepath.Join(l.dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		texts[i] = string(data)
	}
	l.index = ParseModules(texts[0], texts[1], texts[2], texts[3])
	return l, nil
}

// request loads the drivers that match a modalias or a name. If several match, all are loaded. A name without a match
// is no error.
func (l *loader) request(name string) error {
	var errs []error
	for _, module := range l.index.Match(name) {
		errs = append(errs, l.load(module))
	}
	return errors.Join(errs...)
}

// load loads one module with its dependencies. Concurrent calls for the same module wait for the first.
func (l *loader) load(name string) error {
	l.mu.Lock()
	once, known := l.loads[name]
	if !known {
		once = sync.OnceValue(func() error { return l.loadNow(name) })
		l.loads[name] = once
	}
	l.mu.Unlock()
	return once()
}

// loadNow relies on dependencies having no loops, which depmod refuses and the kernel could not load. Soft dependencies
// may have loops: they are loaded outside of the once.
func (l *loader) loadNow(name string) error {
	for _, soft := range l.index.soft[name] {
		for _, module := range l.index.Match(soft) {
			// another driver may support the device; often the processor lacks what this one requires
			_ = l.insert(module)
		}
	}
	return l.insert(name)
}

// insert loads a module and its dependencies; the kernel ignores those that are loaded.
func (l *loader) insert(name string) error {
	deps := l.index.deps[name]
	for i := len(deps) - 1; i >= 0; i-- {
		if err := l.insertOne(deps[i]); err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return l.insertOne(name)
}

func (l *loader) insertOne(name string) error {
	if l.index.builtin[name] {
		return nil
	}
	f, err := os.Open(filepath.Join(l.dir, l.index.files[name]))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", name, err)
	}
	return nil
}

// modprobe is the program that the kernel calls: modprobe -q -- NAME.
func modprobe(args []string) int {
	l, err := newLoader()
	for _, name := range args {
		if err == nil && name != "" && name[0] != '-' {
			err = l.request(name)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "modprobe:", err)
		return 1
	}
	return 0
}
