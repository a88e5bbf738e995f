package osinit

import (
	"path"
	"strings"
)

// Modules are the indexes of a kernel's drivers, as depmod(8) writes them.
type Modules struct {
	files   map[string]string   // name -> path below /lib/modules/VERSION
	deps    map[string][]string // name -> names, to be loaded from last to first
	soft    map[string][]string // name -> names or aliases that are loaded before it if possible
	builtin map[string]bool
	exact   map[string][]string      // alias without wildcards -> names
	globs   map[string][]moduleAlias // bus, which is what comes before ':' -> patterns
}

type moduleAlias struct {
	prefix  string // of pattern, before its first wildcard; quick to compare
	pattern string
	name    string
}

// ParseModules reads the texts of modules.dep, modules.softdep, modules.alias and modules.builtin. Invalid lines
// are skipped: one missing driver is better than no boot.
func ParseModules(dep, softdep, alias, builtin string) *Modules {
	m := &Modules{
		files: map[string]string{}, deps: map[string][]string{}, soft: map[string][]string{},
		builtin: map[string]bool{},
		exact:   map[string][]string{}, globs: map[string][]moduleAlias{},
	}
	for line := range strings.Lines(dep) {
		file, needs, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || !safePath(file) {
			continue
		}
		m.files[nameOf(file)] = file
		for _, need := range strings.Fields(needs) {
			m.deps[nameOf(file)] = append(m.deps[nameOf(file)], nameOf(need))
		}
	}
	for line := range strings.Lines(softdep) {
		if f := strings.Fields(line); len(f) > 3 && f[0] == "softdep" && f[2] == "pre:" {
			m.soft[normal(f[1])] = f[3:]
		}
	}
	for line := range strings.Lines(alias) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "alias" {
			m.addAlias(f[1], normal(f[2]))
		}
	}
	for line := range strings.Lines(builtin) {
		m.builtin[nameOf(strings.TrimSpace(line))] = true
	}
	return m
}

func (m *Modules) addAlias(pattern, name string) {
	wild := strings.IndexAny(pattern, "*?[")
	if wild < 0 {
		m.exact[normal(pattern)] = append(m.exact[normal(pattern)], name)
		return
	}
	bus, _, _ := strings.Cut(pattern, ":")
	m.globs[bus] = append(m.globs[bus], moduleAlias{pattern[:wild], pattern, name})
}

// Match returns the modules for a device's modalias, a module's name or an alias. None means that there is no driver,
// or that it is built in.
func (m *Modules) Match(request string) []string {
	if name := normal(request); m.files[name] != "" {
		return []string{name}
	}
	names := append([]string(nil), m.exact[normal(request)]...)
	bus, _, _ := strings.Cut(request, ":")
	for _, a := range m.globs[bus] {
		if strings.HasPrefix(request, a.prefix) {
			if ok, _ := path.Match(a.pattern, request); ok {
				names = append(names, a.name)
			}
		}
	}
	return names
}

// nameOf returns the name of the module in a file.
func nameOf(file string) string { return normal(strings.TrimSuffix(path.Base(file), ".ko")) }

// normal writes a name as the kernel does.
func normal(name string) string { return strings.ReplaceAll(name, "-", "_") }

// safePath reports whether a path stays below its directory.
func safePath(p string) bool {
	return p != "" && !path.IsAbs(p) && path.Clean(p) == p && !strings.HasPrefix(p, "../")
}
