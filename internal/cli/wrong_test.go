package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// TestWrongInputs gives a cluster what operators get wrong, from the archives in testdata/wrong. A case is an input and
// the message that refuses it, NAME.err: NAME.yaml is applied, NAME.cmd is a command line. Each must exit with status
// 1, print nothing else, and change no record; the message of a manifest begins with its line.
func TestWrongInputs(t *testing.T) {
	h, err := startHead(t.Context(), filepath.Join(t.TempDir(), "head"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	cl, err := h.client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	t.Setenv("TRIVET_CONFIG", h.admin)
	site, _ := filepath.Abs("testdata/wrong/site.yaml")
	archives, err := filepath.Glob("testdata/wrong/*.txt")
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for i := range archives {
		archives[i], _ = filepath.Abs(archives[i])
	}
	t.Chdir(t.TempDir())
	writeOddFiles(t)
	for _, line := range []string{
		"image import disk.raw --name debian", "apply -f " + site} {
		if status, out, errs := trivetCommand(t.Context(), strings.Fields(line)); status != 0 {
			t.Fatalf("trivet %s: status %d\n%s%s", line, status, out, errs)
		}
	}
	for _, file := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { wrongInputs(t, cl, file) })
	}
}

// wrongInputs runs the cases of an archive.
func wrongInputs(t *testing.T, cl *client.Client, file string) {
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	writeOddFiles(t)
	if err := txtar.Write(a, "."); err != nil {
		t.Fatal(err)
	}
	before := recordsOf(t, cl)
	for i := range a.Files {
		name, isCase := strings.CutSuffix(a.Files[i].Name, ".err")
		if !isCase {
			continue
		}
		t.Run(name, func(t *testing.T) {
			got := refused(t, a.Files[i-1])
			if want := string(a.Files[i].Data); got != want && os.Getenv("UPDATE") == "" {
				t.Errorf("%s\nwant:\n%s", got, want)
			}
			a.Files[i].Data = []byte(got)
			if after := recordsOf(t, cl); after != before {
				t.Errorf("it changed records:\n%s\nbefore:\n%s", after, before)
				before = after
			}
		})
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// refused returns the message that an input is refused with.
func refused(t *testing.T, input txtar.File) string {
	args, manifest := []string{"apply", "-f", input.Name}, true
	if strings.HasSuffix(input.Name, ".cmd") {
		args, manifest = commandLine(string(input.Data)), false
	}
	status, out, errs := trivetCommand(t.Context(), args)
	if status != 1 || out != "" {
		t.Errorf("trivet %s: status %d\n%s", strings.Join(args, " "), status, out)
	}
	if place := "^trivet: " + regexp.QuoteMeta(input.Name) + `:\d+:\d+: `; manifest &&
		!regexp.MustCompile(place).MatchString(errs) {
		t.Errorf("the message names no line:\n%s", errs)
	}
	return errs
}

// trivetCommand runs a command line in this process.
func trivetCommand(ctx context.Context, args []string) (status int, out, errs string) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // a command must not wait for what does not exist
	defer cancel()
	var stdout, stderr bytes.Buffer
	root := Root(Env{In: strings.NewReader(""), Out: &stdout, Err: &stderr, Version: "v0-test"})
	root.SetArgs(args)
	status = Execute(ctx, root)
	return status, stdout.String(), stderr.String()
}

// commandLine returns the arguments of "trivet get machine 'a b'".
func commandLine(line string) (args []string) {
	line = strings.TrimSpace(line)
	for i, part := range strings.Split(strings.TrimPrefix(line, "trivet "), "'") {
		if i%2 == 1 {
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	return args
}

// recordsOf returns what a wrong input could change: all records, with their revisions where heads do not write them
// by themselves.
func recordsOf(t *testing.T, cl *client.Client) string {
	var all strings.Builder
	for _, info := range trivet.Kinds {
		if info.Kind == "Event" {
			continue
		}
		records, _, err := cl.Kind(info).AllProjects().List(t.Context(), client.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			h := r.Header()
			version := h.Revision
			if info.Kind == "Head" || info.Kind == "Site" {
				version = h.Generation
			}
			fmt.Fprintln(&all, info.Kind, h.FullName(), h.UID, version)
		}
	}
	return all.String()
}

// writeOddFiles writes the files that an archive cannot have.
func writeOddFiles(t *testing.T) {
	utf16Text := []byte{0xff, 0xfe}
	for _, unit := range utf16.Encode([]rune("kind: Machine\nname: m9\n")) {
		utf16Text = append(utf16Text, byte(unit), byte(unit>>8))
	}
	disk := make([]byte, 1<<20)
	disk[510], disk[511] = 0x55, 0xaa
	for name, text := range map[string][]byte{
		"disk.raw": disk, "other.raw": append(bytes.Clone(disk), make([]byte, 512)...),
		"huge.yaml": nil, "empty.yaml": nil, "utf16.yaml": utf16Text,
		"program.yaml": []byte("\x7fELF\x02\x01\x01\x00\x00\x00"), "notes/machines.txt": []byte("m1 m2\n"),
		"latin1.yaml": []byte("kind: Machine\nname: m9\nspec: {rack: \"B\xfcro\"}\n"),
	} {
		err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, text, 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate("huge.yaml", maxManifest+1); err != nil {
		t.Fatal(err)
	}
}
