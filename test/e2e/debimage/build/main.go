// Build writes the tests' Debian image to a file, for trying Trivet by hand.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/trivet-project/trivet/test/e2e/debimage"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./test/e2e/debimage/build FILE.raw.zst")
		os.Exit(2)
	}
	if err := build(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func build(path string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	image, err := debimage.Build(ctx, func(line string) { fmt.Println(line) })
	if err != nil {
		return err
	}
	in, err := os.Open(image.Zstd)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}
