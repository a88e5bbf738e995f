// Package compat_test runs version 0.1.0 beside this one: a head's data that pass from one to the other, agents and commands of
// either at heads of either, and records with fields that neither knows. Nothing is dropped.
package compat_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ulikunitz/xz"
)

// What version 0.1.0 is built from is kept here, as a clone of the repository may be without its history. It was made so:
//
//	git archive v0.1.0 -- go.mod go.sum '*.go' client cmd internal ':!*_test.go' ':!**/testdata/**' | xz -9e
const oldSource = "testdata/v0.1.0.tar.xz"

// oldVersion is what that says of itself.
const oldVersion = "v0.1.0"

// The programs: of version 0.1.0, its agent in a simulated installer OS, and the one under test.
var oldTrivet, oldInstaller, newTrivet string

func TestMain(m *testing.M) {
	if newTrivet = os.Getenv("TRIVET"); newTrivet == "" {
		fmt.Fprintln(os.Stderr, "TRIVET is not set: run make test, or make build && TRIVET=$PWD/bin/trivet go test ./test/compat")
		os.Exit(1)
	}
	dir, err := os.MkdirTemp("", "trivet-compat-")
	if err == nil {
		err = buildOld(dir)
	}
	status := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		status = m.Run()
	}
	_ = os.RemoveAll(dir) // of the system's temporary files, at worst
	os.Exit(status)
}

// buildOld builds the old programs, with the flags of the Makefile, so that what both share is compiled once.
func buildOld(dir string) error {
	if err := unpack(oldSource, dir); err != nil {
		return fmt.Errorf("unpack %s: %w", oldSource, err)
	}
	installer, err := os.ReadFile("testdata/installer/main.go")
	if err != nil {
		return err
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "cmd/installer"), 0o755),
		os.WriteFile(filepath.Join(dir, "cmd/installer/main.go"), installer, 0o644)); err != nil {
		return err
	}
	oldTrivet, oldInstaller = filepath.Join(dir, "bin/trivet"), filepath.Join(dir, "bin/installer")
	c := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+oldVersion, "-o", "bin/", "./cmd/...")
	c.Dir, c.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build version 0.1.0: %w\n%s", err, out)
	}
	return nil
}

func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := xz.NewReader(f)
	if err != nil {
		return err
	}
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, h.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644)); err != nil {
			return err
		}
	}
}
