package client_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The SDK stands alone: other programs can use everything that it exports. A package that imports no internal package, and
// whose own imports in this module do not either, can mention no internal type.
func TestSDKImportsNoInternalPackage(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{".", ".."} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range parsed.Imports {
				path, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(path, "/trivet/") {
					t.Errorf("%s imports %s; only the root package is allowed", file, path)
				}
			}
		}
	}
}
