package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/goccy/go-yaml"

	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/program"
	"github.com/trivet-project/trivet/internal/server"
)

// ownPrograms returns the programs in a head's data directory.
func ownPrograms(dataDir string) *program.Dir {
	self, err := os.Executable()
	if err != nil {
		self = "/proc/self/exe"
	}
	return program.Open(dataDir, strings.TrimSuffix(self, " (deleted)"))
}

// startSelected replaces this process by the program that an upgrade has selected for the head, if there is one. It
// runs before flags and the configuration are parsed: those of a later release are unknown to this program. Where it
// fails, this program runs.
func startSelected(args []string) {
	args, ok := serverArgs(args)
	if !ok || slices.ContainsFunc(args, isHelp) {
		return
	}
	dir := dataDirOf(args)
	if cluster.CheckNotRunning(filepath.Join(dir, "store")) != nil { // the start of a second process is none of the head
		return
	}
	file, err := ownPrograms(dir).Start()
	if err == nil && file != "" {
		err = execFile(file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "trivet: the program that an upgrade has brought is not used:", err)
	}
}

// serverArgs returns the arguments of trivet server; false: it is another command.
func serverArgs(args []string) ([]string, bool) {
	for i := 1; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "server":
			return args[i+1:], true
		case !strings.HasPrefix(arg, "-"):
			return nil, false
		case arg == "--context" || arg == "--project" || arg == "-p":
			i++ // its value
		}
	}
	return nil, false
}

func isHelp(arg string) bool { return arg == "--help" || arg == "-h" }

// dataDirOf returns the data directory by the arguments of trivet server, and by the file of --config.
func dataDirOf(args []string) string {
	if dir := flagOf(args, "data-dir"); dir != "" {
		return dir
	}
	if file := flagOf(args, "config"); file != "" {
		var known struct {
			DataDir string `yaml:"data-dir"`
		}
		if text, err := os.ReadFile(file); err == nil && yaml.Unmarshal(text, &known) == nil && known.DataDir != "" {
			return known.DataDir
		}
	}
	return server.DefaultDir
}

// flagOf returns the value of a flag; the last one counts.
func flagOf(args []string, name string) (value string) {
	for i, arg := range args {
		if v, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
			value = v
		} else if arg == "--"+name && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}

// execNext replaces this process by the program that the head runs next, with the same arguments and environment.
func execNext(programs *program.Dir) error {
	file, err := programs.Next()
	if err != nil {
		return err
	}
	if file == "" {
		file = "/proc/self/exe"
	}
	return execFile(file)
}

func execFile(file string) error {
	err := syscall.Exec(file, os.Args, os.Environ())
	if errors.Is(err, syscall.ENOENT) {
		err = fmt.Errorf("%w: install the program again", err)
	}
	return fmt.Errorf("start %s: %w", file, err)
}
