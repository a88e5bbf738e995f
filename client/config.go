package client

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/google/renameio/v2"

	"github.com/trivet-project/trivet"
)

// File is the configuration file: the known clusters and the current one. A head writes one of the same form for its
// own administrator.
type File struct {
	Current  string             `yaml:"current,omitempty"`
	Contexts map[string]Context `yaml:"contexts"`
}

// Context is one cluster, as one account.
type Context struct {
	Endpoints []string `yaml:"endpoints"`
	Trust     string   `yaml:"trust"` // pins or PEM; see [Config]
	Token     string   `yaml:"token"`
}

// AdminFile is where a head stores its administrator's credential for users on that head.
const AdminFile = "/var/lib/trivet/admin.yaml"

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// FilePath returns $TRIVET_CONFIG, or trivet/config.yaml in the user's configuration directory.
func FilePath() (string, error) {
	if path := os.Getenv("TRIVET_CONFIG"); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the config file: %w (set TRIVET_CONFIG)", err)
	}
	return filepath.Join(dir, "trivet", "config.yaml"), nil
}

// ReadFile reads a configuration file. It holds a token, so one that others may read is refused.
func ReadFile(path string) (*File, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("config file: %w: %w", trivet.ErrNotFound, err)
	case err != nil:
		return nil, fmt.Errorf("config file: %w", err)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("config file %s: %w: others may read it (chmod 600 %s)", path, trivet.ErrInvalid, path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("config file %s: %w: %d bytes", path, trivet.ErrTooLarge, info.Size())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config file: %w", err)
	}
	var f File
	if err := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&f); err != nil {
		return nil, fmt.Errorf("config file %s: %w: %s", path, trivet.ErrInvalid, yaml.FormatError(err, false, false))
	}
	return &f, nil
}

// Write writes a configuration file whole or not at all, for its owner only.
func (f *File) Write(path string) error {
	data, err := yaml.Marshal(f)
	if err != nil {
		return fmt.Errorf("config file: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("config file: %w", err)
	}
	if err := renameio.WriteFile(path, data, 0o600, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("config file: %w", err)
	}
	return nil
}

// Name returns the given name; if it is empty, the current context's, or that of the only one.
func (f *File) Name(name string) string {
	name = cmp.Or(name, f.Current)
	if name == "" && len(f.Contexts) == 1 {
		for name = range f.Contexts {
		}
	}
	return name
}

// Pick returns the context that Name selects.
func (f *File) Pick(name string) (Context, error) {
	name = f.Name(name)
	c, ok := f.Contexts[name]
	if !ok {
		return Context{}, fmt.Errorf("context %q: %w in the config file", name, trivet.ErrNotFound)
	}
	return c, nil
}

// Environment returns the configuration of this program's environment: a context of the config file, or of AdminFile if
// there is no config file, overridden by TRIVET_ENDPOINTS (comma-separated), TRIVET_TRUST and TRIVET_TOKEN. context is
// the name of a context; empty means TRIVET_CONTEXT or the file's current one.
func Environment(context string) (Config, error) {
	endpoints, trust, token := os.Getenv("TRIVET_ENDPOINTS"), os.Getenv("TRIVET_TRUST"), os.Getenv("TRIVET_TOKEN")
	var c Context
	if endpoints == "" || trust == "" || token == "" {
		var err error
		if c, err = stored(cmp.Or(context, os.Getenv("TRIVET_CONTEXT"))); err != nil {
			return Config{}, err
		}
	}
	if endpoints != "" {
		c.Endpoints = strings.Split(endpoints, ",")
	}
	return Config{Endpoints: c.Endpoints, Trust: cmp.Or(trust, c.Trust), Token: cmp.Or(token, c.Token)}, nil
}

func stored(context string) (Context, error) {
	path, err := FilePath()
	if err != nil {
		return Context{}, err
	}
	f, err := ReadFile(path)
	if errors.Is(err, trivet.ErrNotFound) && context == "" {
		if f, adminErr := ReadFile(AdminFile); adminErr == nil {
			return f.Pick("")
		}
	}
	if err != nil {
		return Context{}, &trivet.Error{Op: "find a cluster", Err: err,
			Hint: "run trivet login, set TRIVET_ENDPOINTS, TRIVET_TRUST and TRIVET_TOKEN, or run as root on a head"}
	}
	return f.Pick(context)
}
