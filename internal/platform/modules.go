package platform

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// addModules adds the selected drivers, their dependencies, and the indexes for agent/installer/osinit, in the formats
// of depmod. It returns the number of drivers.
func (b *builder) addModules(k *kernel) (int, error) {
	all, err := readModules(filepath.Join(string(k.tree), k.modules))
	if err != nil {
		return 0, err
	}
	chosen := all.selectModules(append(slices.Clone(Modules), b.Modules...))
	dir := "lib/modules/" + k.version + "/"
	for _, m := range chosen {
		data, err := m.read()
		if err != nil {
			return 0, err
		}
		b.files.add(dir+m.path, 0o644, data)
	}
	builtin, err := k.tree.read(path.Join(k.modules, "modules.builtin"))
	if err != nil {
		return 0, err
	}
	b.files.add(dir+"modules.builtin", 0o644, builtin)
	b.files.add(dir+"modules.dep", 0o644, all.depFile(chosen))
	b.files.add(dir+"modules.alias", 0o644, aliasFile(chosen))
	b.files.add(dir+"modules.softdep", 0o644, softdepFile(chosen))
	return len(chosen), nil
}

// modules is all modules of a kernel, by name.
type modules map[string]*module

// readModules reads the .modinfo of every module below dir.
func readModules(dir string) (modules, error) {
	all := modules{}
	err := filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(d.Name(), ".ko") {
			return err
		}
		m, err := readModule(dir, file)
		if err != nil {
			return fmt.Errorf("read module %s: %w", file, err)
		}
		all[m.name] = m
		return nil
	})
	return all, err
}

func readModule(dir, file string) (*module, error) {
	rel, err := filepath.Rel(dir, file)
	if err != nil {
		return nil, err
	}
	m := &module{file: file}
	m.path = rel[:strings.LastIndex(rel, ".ko")+3]
	m.name = moduleName(strings.TrimSuffix(path.Base(m.path), ".ko"))
	data, err := m.read()
	if err != nil {
		return nil, err
	}
	return m, m.parse(bytes.NewReader(data))
}

// read returns the decompressed module; some distributions compress modules.
func (m *module) read() ([]byte, error) {
	f, err := os.Open(m.file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := decompress(context.Background(), filepath.Ext(m.file), f)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, maxModule))
}

// selectModules returns the modules that match the patterns and their dependencies, sorted by path.
func (all modules) selectModules(patterns []string) []*module {
	chosen := map[string]*module{}
	var add func(m *module)
	add = func(m *module) {
		if m == nil || chosen[m.name] != nil {
			return
		}
		chosen[m.name] = m
		for _, name := range m.depends {
			add(all[name])
		}
		for _, name := range m.softdeps {
			add(all[moduleName(name)])
			for _, other := range all.byAlias(name) {
				add(other)
			}
		}
	}
	for _, m := range all {
		if m.matches(patterns) {
			add(m)
		}
	}
	return sorted(chosen)
}

func sorted(by map[string]*module) []*module {
	list := make([]*module, 0, len(by))
	for _, m := range by {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *module) int { return strings.Compare(a.path, b.path) })
	return list
}

func (all modules) byAlias(alias string) []*module {
	found := map[string]*module{}
	for _, m := range all {
		if slices.Contains(m.aliases, alias) {
			found[m.name] = m
		}
	}
	return sorted(found)
}

// dependencies returns all dependencies of a module, each after the modules that need it: the last is loaded first.
func (all modules) dependencies(m *module) []string {
	var order []string
	seen := map[string]bool{m.name: true}
	var visit func(m *module)
	visit = func(m *module) {
		for _, name := range m.depends {
			if d := all[name]; d != nil && !seen[name] {
				seen[name] = true
				visit(d)
				order = append(order, d.path)
			}
		}
	}
	visit(m)
	slices.Reverse(order)
	return order
}

// depFile returns the content of modules.dep(5).
func (all modules) depFile(chosen []*module) []byte {
	var b bytes.Buffer
	for _, m := range chosen {
		fmt.Fprintln(&b, strings.TrimSpace(m.path+": "+strings.Join(all.dependencies(m), " ")))
	}
	return b.Bytes()
}

func aliasFile(chosen []*module) []byte {
	var b bytes.Buffer
	for _, m := range chosen {
		for _, alias := range m.aliases {
			fmt.Fprintln(&b, "alias", alias, m.name)
		}
	}
	return b.Bytes()
}

func softdepFile(chosen []*module) []byte {
	var b bytes.Buffer
	for _, m := range chosen {
		if len(m.softdeps) > 0 {
			fmt.Fprintln(&b, "softdep", m.name, "pre:", strings.Join(m.softdeps, " "))
		}
	}
	return b.Bytes()
}
